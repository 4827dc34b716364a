"""SEQ10: sentinels of span corruption that are words of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.resolve.rule import finds
from t5x_harness.spec import Severity

if TYPE_CHECKING:
    from t5x_harness.resolve.resolved import Resolved

_MODULE = """\
import seqio
import tensorflow as tf
from t5x_harness.sample_tasks import span_corruption, vocabularies


def lines(split, shuffle_files=False, seed=None):
    return tf.data.Dataset.from_tensors({'targets': 'The Rhine is 1233 km long. It rises in the Alps.'}).repeat(8)


FEATURE = seqio.Feature(seqio.SentencePieceVocabulary(vocabularies.SENTENCEPIECE_MODEL, extra_ids=0))

seqio.TaskRegistry.add(
    'counting',
    source=seqio.FunctionDataSource(lines, splits=('train', 'validation')),
    preprocessors=[
        seqio.preprocessors.tokenize, span_corruption.span_corruption, seqio.preprocessors.append_eos_after_trim
    ],
    output_features={'inputs': FEATURE, 'targets': FEATURE},
)
"""


def _taken_from(module: str) -> Example:
    """Returns an example with the vocabulary of a task's module."""
    return training(
        "VOCABULARY = @counting.pieces()",
        "network.T5Config.vocab_size = 640",
        files={"counting.py": f"{module}\n\ndef pieces():\n    return FEATURE.vocabulary\n"},
        at="MIXTURE_OR_TASK_NAME",
    )


SEQ10 = Mistake(
    "SEQ10",
    "sentinels of span corruption that are pieces of text",
    severity=Severity.WARNING,
    why=(
        "Span corruption takes its sentinels from the top of the vocabulary. With `extra_ids=0`, or with more spans "
        "than extra ids, those are words: the model learns two meanings for each, and nothing says so."
    ),
    bad=_taken_from(_MODULE),
    good=_taken_from(_MODULE.replace("extra_ids=0", "extra_ids=100")),
)


@finds(SEQ10)
def overwritten_pieces(run: Resolved) -> Iterator[Found]:
    """Finds each task of whose sampled sentinels some are pieces of text."""
    from t5x_harness.resolve.sentinels import overwritten_piece, sentinels_of

    said = set()
    for role, sample in run.sampled():
        feature = sample.task.output_features.get("targets")
        if role.name != "train" or feature is None or sample.task.name in said:
            continue
        used = sentinels_of(sample)
        piece = overwritten_piece(feature.vocabulary, used) if used else None
        if piece:
            said.add(sample.task.name)
            extra = feature.vocabulary.extra_ids
            also = f"is also the piece {piece.text!r}"
            if run.standins.is_vocabulary_generated(feature.vocabulary):
                also = "is also a piece of text, unless the last pieces of its file are sentinels"
            yield Found(
                f"the examples of task {sample.task.name} are corrupted spans with {used} sentinels, and its "
                f"vocabulary has {f'{extra} extra ids' if extra else 'no extra ids'}: the sentinel with the id "
                f"{piece.id} {also}",
                role.key(run.config, "mixture_or_task_name"),
                f"give the vocabulary of the task, and the model's, at least {max(100, used)} extra_ids",
            )
