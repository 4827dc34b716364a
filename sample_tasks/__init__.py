"""Tiny SeqIO tasks that are shaped like real ones, their data, and Gin configs that train, evaluate and infer on them.

Everything ships with the package and is a pure function of it, without downloads, credentials or randomness. The
data and vocabulary of ``sample_c4`` are T5's own, for which a run has stand-ins.

================================  ==========================  =============================  ==================
task or mixture                   source                      vocabulary                     metrics
================================  ==========================  =============================  ==================
``sample_span_corruption``        TextLineDataSource          SentencePiece, 100 extra ids   none (loss only)
``sample_c4``                     TfdsDataSource              SentencePiece of T5            none (loss only)
``sample_translate``              FunctionDataSource          SentencePiece                  BLEU
``sample_classify``               TextLineDataSource (TSV)    bytes                          accuracy
``sample_answer``                 TFExampleDataSource         SentencePiece                  SQuAD EM and F1
``sample_sums``                   TfdsDataSource              bytes                          sequence accuracy
``sample_stream``                 FunctionDataSource, stream  bytes                          sequence accuracy
``sample_mixture``                translate and answer        SentencePiece                  of its tasks
================================  ==========================  =============================  ==================

``import t5x_harness.sample_tasks.tasks`` in a Gin file registers all of them.
"""

from pathlib import Path

__all__ = ["CONFIGS"]

CONFIGS = Path(__file__).parent / "configs"
"""The folder of the Gin configs, which is a search path for their includes."""
