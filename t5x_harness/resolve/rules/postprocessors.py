"""SEQ24: postprocess functions that do not take what SeqIO gives them."""

from __future__ import annotations

from t5x_harness.findings import examples
from t5x_harness.resolve.rule import CalledEarly, Example

_EVALUATED = examples.evaluated("utils.DatasetConfig.split = 'validation'")
_METRICS = "    metric_fns=[exact],\n"


class PostprocessRaises(CalledEarly):
    """A postprocess function that raises."""

    code = "SEQ24"
    title = "postprocess function that raises"
    why = (
        "SeqIO calls it with the text of every target and every prediction, and with `example` and `is_target` by "
        "name, when all predictions are made. An untrained model predicts any text, an empty one, too; one text that "
        "makes it raise ends the evaluation."
    )
    bad = Example(
        _EVALUATED,
        files=examples.files(
            _METRICS, f"{_METRICS}    postprocess_fn=lambda text, **_: [int(number) for number in text.split()],\n"
        ),
        at="    postprocess_fn=",
    )
    good = Example(
        _EVALUATED,
        files=examples.files(_METRICS, f"{_METRICS}    postprocess_fn=lambda text, **_: text.split(),\n"),
    )
