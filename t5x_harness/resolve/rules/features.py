"""SEQ06 and SEQ37: preprocessors that do not make the features that the task declares."""

from __future__ import annotations

from t5x_harness.resolve import examples
from t5x_harness.resolve.rule import Example, RaisedRule

_REGISTERED = "seqio.TaskRegistry.add("


class MissingFeature(RaisedRule):
    """A feature that the task declares and its preprocessors do not make."""

    code = "SEQ06"
    title = "output feature that the preprocessors do not make"
    why = "Columns of the source are called otherwise than the features of the task: SeqIO raises on the first example."
    bad = Example(
        examples.trained(), files=examples.files("'inputs': ['one two'", "'source': ['one two'"), at=_REGISTERED
    )
    good = Example(examples.trained(), files=examples.FILES)


class FeatureType(RaisedRule):
    """A feature of another type than the task declares."""

    code = "SEQ37"
    title = "feature of another type than the task declares"
    why = "A task without a tokenizer hands on text, where T5X needs int32 ids; SeqIO raises when the job reads it."
    bad = Example(
        examples.trained(),
        files=examples.files("[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]", "[]"),
        at=_REGISTERED,
    )
    good = Example(examples.trained(), files=examples.FILES)
