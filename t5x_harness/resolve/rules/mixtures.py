"""SEQ17: mixtures whose rates cannot be computed, or leave a task out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.resolve.rule import finds
from t5x_harness.spec import Severity

if TYPE_CHECKING:
    from t5x_harness.resolve.resolved import Resolved

_SOURCE = "splits=('train', 'validation')"
_COUNTED = f"{_SOURCE}, num_input_examples={{'train': 2, 'validation': 2}}"
_MIXTURE = """\

seqio.MixtureRegistry.add('mixed', ['counting'], default_rate=seqio.mixing_rate_num_examples)
"""
_MIXED = "MIXTURE_OR_TASK_NAME = 'mixed'"


SEQ17 = Mistake(
    "SEQ17",
    "mixing rate that is not a positive number",
    why=(
        "`seqio.mixing_rate_num_examples` needs a cached task, or a source with `num_input_examples`: without, it "
        "raises `unsupported operand type(s) for *=` when the job starts. A task with the rate 0 is never seen."
    ),
    bad=training(_MIXED, files={"counting.py": examples.TASK + _MIXTURE}, at="seqio.MixtureRegistry.add("),
    good=training(_MIXED, files={"counting.py": examples.TASK.replace(_SOURCE, _COUNTED) + _MIXTURE}),
)


@finds(SEQ17)
def mixing_rates(run: Resolved) -> Iterator[Found]:
    """Finds each task without a positive rate in a mixture whose data is mixed."""
    from t5x_harness.resolve.mixtures import mixtures_of, rates_of

    for mixture, split in mixtures_of(run):
        place = run.registrations.place(mixture.name)
        for task, rate in rates_of(mixture, split).items():
            if isinstance(rate, Exception):
                yield Found(
                    f"the rate of task {task} in mixture {mixture.name} cannot be computed: {_error_text(rate)}",
                    None,
                    "give the task's source num_input_examples, cache it, or give a number as the rate",
                    location=place,
                )
            elif rate == 0:
                yield Found(
                    f"task {task} has the rate 0 in mixture {mixture.name}: no example of it is ever read",
                    None,
                    f"give a rate above 0, or take {task} out of the mixture",
                    location=place,
                    severity=Severity.WARNING,
                )
            elif rate < 0 or not math.isfinite(rate):
                yield Found(
                    f"task {task} has the rate {rate:g} in mixture {mixture.name}, which must be a positive number",
                    None,
                    "give a rate above 0",
                    location=place,
                )


def _error_text(error: Exception) -> str:
    if isinstance(error, TypeError) and "NoneType" in str(error):
        return "its source does not say num_input_examples, and it is not cached"
    return f"{type(error).__name__}: {error}"
