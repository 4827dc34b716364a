"""The folders of failed runs: the last three are kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.commands.main import main
from t5x_harness.sample_tasks import CONFIGS
from t5x_harness.spec import Outcome, RunResult, RunSpec, Stage, StageResult


def test_the_last_three_folders_of_failed_runs_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = Outcome.FAILED

    def run_specs(specs: Sequence[RunSpec], workspace: Path, **_given: Any) -> Iterator[RunResult]:
        (workspace / "01-run").mkdir()
        (workspace / "01-run" / "run.log").touch()
        yield RunResult(specs[0], (StageResult(Stage.RESOLVE, outcome),))

    monkeypatch.setattr("t5x_harness.runs.several.run_specs", run_specs)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    config = str(CONFIGS / "infer_answer.gin")
    for _ in range(5):
        assert main(["run", config]) == 1
    named = [Path(found) for found in re.findall("logs and outputs are kept in (.*)", capsys.readouterr().err)]
    assert len(named) == 5
    assert set(tmp_path.iterdir()) == set(named[2:])
    outcome = Outcome.PASSED
    assert main(["run", config]) == 0
    assert set(tmp_path.iterdir()) == set(named[2:])
