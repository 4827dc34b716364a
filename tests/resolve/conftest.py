"""Resolves configs on tasks written in the test, each in a process forked from one warmed process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import t5x_in_use
from local_run import LocalRun

from t5x_harness.spec import RunSpec, Stage, StageResult
from t5x_harness.workers import Zygote


@pytest.fixture
def resolve(zygote: Zygote, tmp_path: Path) -> Callable[..., StageResult]:
    """Gives the result of resolving a config."""

    def run(gin: str, files: Mapping[str, str], *, slice: str = "v3-8") -> StageResult:
        for name, text in {**files, "run.gin": gin}.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        spec = RunSpec(
            ("run.gin",), slice=slice, runtime=t5x_in_use.name, python_path=(str(tmp_path),), cwd=str(tmp_path)
        )
        with LocalRun(spec, zygote=zygote, workspace=tmp_path / "run", timeout=120) as backend:
            return backend.stage(Stage.RESOLVE)

    return run
