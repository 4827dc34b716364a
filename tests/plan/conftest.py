"""Plans configs on the examples' tiny task, each in a process forked from one warmed process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import t5x_harness
from t5x_harness.backends.local import PRELOAD, LocalBackend
from t5x_harness.import_hooks import RUNTIME_VARIABLE
from t5x_harness.resolve import examples
from t5x_harness.spec import RunResult, RunSpec, Stage, StageResult
from t5x_harness.workers import Zygote, compile_cache_environment, default_cache_folder

Planned = Callable[..., StageResult]


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """The warmed process."""
    bootstrap = Path(t5x_harness.__file__).parent / "bootstrap"
    env = {
        RUNTIME_VARIABLE: "embedded",
        "PYTHONPATH": str(bootstrap),
        **compile_cache_environment(default_cache_folder(os.environ)),
    }
    with Zygote(preload=PRELOAD, env=env) as shared:
        yield shared


@pytest.fixture
def run(zygote: Zygote, tmp_path: Path) -> Callable[..., RunResult]:
    """Runs a config up to a stage, at full size; its files lie in ``tmp_path``."""

    def until(gin: str, stage: Stage) -> RunResult:
        for name, text in {**examples.FILES, "run.gin": gin}.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        spec = RunSpec(
            ("run.gin",), runtime="embedded", python_path=(str(tmp_path),), cwd=str(tmp_path), full_size=True
        )
        with LocalBackend(spec, zygote=zygote, workspace=tmp_path / "work", timeout=300) as backend:
            backend.stage(stage)
            return backend.result()

    return until


@pytest.fixture
def plan(run: Callable[..., RunResult]) -> Planned:
    """Plans a train config that ends with these lines, or the config of another mode."""
    return lambda *lines, gin=None: run(gin or examples.trained(*lines), Stage.PLAN).stages[-1]
