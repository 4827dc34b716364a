"""T5X's programs, but for what judges them: the last word of a job's command, as a script of the shell."""

from __future__ import annotations

from collections.abc import Sequence

from t5x_harness.google.vertex.jobs.judging import CannotJudge
from t5x_harness.slices.slice import Slice
from t5x_harness.spec import AotMode
from t5x_harness.vertex.job_programs import (
    LIBRARIES as LIBRARIES,
)
from t5x_harness.vertex.job_programs import (
    MODULE as MODULE,
)
from t5x_harness.vertex.job_programs import (
    entry_point as entry_point,
)
from t5x_harness.vertex.job_programs import (
    environment as environment,
)
from t5x_harness.vertex.job_programs import (
    folders as folders,
)
from t5x_harness.vertex.job_programs import (
    prepare as prepare,
)
from t5x_harness.vertex.job_programs import (
    runs as runs,
)
from t5x_harness.vertex.job_programs import (
    with_modules as with_modules,
)


def judge(words: Sequence[str], slice: Slice, mode: AotMode) -> tuple[list[str], dict[str, str]]:
    """Returns the script; an empty one stands for words that nobody can judge."""
    if not words[-1]:
        raise CannotJudge("nobody knows what it runs")
    return ["sh", "-c", words[-1]], {"SLICE": slice.name, "MODE": mode.value}
