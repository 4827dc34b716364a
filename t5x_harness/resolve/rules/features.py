"""SEQ06, SEQ37 and SEQ40: preprocessors that do not make the features that the task declares."""

from __future__ import annotations

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Mistake

_REGISTERED = "seqio.TaskRegistry.add("


SEQ06 = Mistake(
    "SEQ06",
    "output feature that the preprocessors do not make",
    why="Columns of the source are called otherwise than the features of the task: SeqIO raises on the first example.",
    bad=training(files=examples.files("'inputs': ['one two'", "'source': ['one two'"), at=_REGISTERED),
    good=training(),
)


SEQ37 = Mistake(
    "SEQ37",
    "feature of another type than the task declares",
    why=(
        "A task without a tokenizer hands on text, where T5X needs int32 ids; a Feature may declare another type than "
        "its preprocessors make. SeqIO raises when the job reads it."
    ),
    bad=training(
        files=examples.files("[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]", "[]"), at=_REGISTERED
    ),
    good=training(),
)


_NESTED = "lambda d: d.map(lambda e: {**e, 'targets': e['targets'][None]})"


SEQ40 = Mistake(
    "SEQ40",
    "feature of another rank than the task declares",
    why="T5X's models take sequences of ids, which have rank 1; SeqIO raises when the job reads the first example.",
    bad=training(
        files=examples.files("seqio.preprocessors.append_eos]", f"seqio.preprocessors.append_eos, {_NESTED}]"),
        at=_REGISTERED,
    ),
    good=training(),
)


FOUND_BY_STAGE = {"MissingFeature": SEQ06, "FeatureType": SEQ37, "FeatureRank": SEQ40}
