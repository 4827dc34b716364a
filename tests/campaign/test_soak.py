"""A short soak: interrupted runs of one session leave nothing; benchmarks/soak.py makes hundreds."""

import runpy
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.journey
def test_interrupted_runs_of_one_session_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = runpy.run_path(str(BENCHMARKS / "soak.py"))
    first, *_, last = runs = list(script["soak"](6, 4, {"infer": 1}, each=3))
    assert [run.wrong for run in runs] == ["", ""]
    assert [len(run.outcomes) for run in runs] == [3, 3]
    assert (last.left.processes, last.left.ports, last.left.entries) == (
        first.left.processes,
        first.left.ports,
        first.left.entries,
    )
    (end,) = script["LEFT_AT_END"]
    assert (end.processes, end.ports, end.entries) == (1, 0, 0)
