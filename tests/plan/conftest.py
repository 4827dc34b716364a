"""Plans configs on the examples' tiny task, each in a process forked from one warmed process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import t5x_in_use
from local_run import LocalRun

from t5x_harness.findings import examples
from t5x_harness.spec import RunResult, RunSettings, RunSpec, Stage, StageResult
from t5x_harness.workers import Zygote

Planned = Callable[..., StageResult]


@pytest.fixture
def run(zygote: Zygote, tmp_path: Path) -> Callable[..., RunResult]:
    """Runs a config up to a stage, at full size; its files lie in ``tmp_path``."""

    def until(gin: str, stage: Stage) -> RunResult:
        for name, text in {**examples.FILES, "run.gin": gin}.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        spec = RunSpec(
            ("run.gin",),
            runtime=t5x_in_use.name,
            python_path=(str(tmp_path),),
            cwd=str(tmp_path),
            settings=RunSettings(full_size=True),
        )
        with LocalRun(spec, zygote=zygote, workspace=tmp_path / "work", timeout=300) as backend:
            backend.stage(stage)
            return backend.result()

    return until


@pytest.fixture
def plan(run: Callable[..., RunResult]) -> Planned:
    """Plans a train config that ends with these lines, or the config of another mode."""
    return lambda *lines, gin=None: run(gin or examples.trained(*lines), Stage.PLAN).stages[-1]
