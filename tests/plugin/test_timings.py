"""``--t5x-timings``, and pytest's ``-v``, show where the time of runs went."""

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]


@pytest.mark.parametrize("option", ["-v", "--t5x-timings"])
def test_where_the_time_went_is_shown(run: Run, option: str) -> None:
    result = run(option, "infer.gin::resolve")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["where the time went:", "  infer *", "    resolve * s  *", "    the rest * s  *"])


def test_it_is_not_shown_unasked(run: Run) -> None:
    run("infer.gin::resolve").stdout.no_fnmatch_line("where the time went:")
