"""With --exact-numerics a run's losses are those of T5X's own program to the bit; without it they are close."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from local_run import LocalRun

from t5x_harness.execute import execution
from t5x_harness.execute.artifacts import scalars_in
from t5x_harness.runtime.choice import Runtime
from t5x_harness.spec import Outcome, RunSettings, RunSpec, Stage

REFERENCE = Path(__file__).parents[1] / "reference"
CONFIG: str = json.loads((REFERENCE / "trajectories/t5_1_1.json").read_text())["gin"]
"""Of a recorded run, all of whose seeds are bound."""

Losses = dict[str, dict[int, float]]


def of_train(metrics: Losses) -> Losses:
    return {
        tag: dict(steps)
        for tag, steps in metrics.items()
        if tag.startswith("train/") and not tag.startswith("train/timing/")
    }


def by_the_harness(run: LocalRun) -> Losses:
    assert run.stage(Stage.TRAIN).outcome is Outcome.PASSED
    return of_train(run.result().metrics)


def by_t5x(folder: Path, slice_: str) -> Losses:
    """Trains by T5X's own program on the slice's mesh, compiled by XLA's usual options."""
    program = [sys.executable, "-m", "t5x.train", "--gin_file=config.gin", f'--gin.MODEL_DIR="{folder}/model"']
    subprocess.run(
        [sys.executable, "-m", "t5x_harness", "exec", f"--slice={slice_}", "--t5x-runtime=embedded", "--", *program],
        env={**os.environ, "PYTHONPATH": str(REFERENCE)},
        cwd=folder,
        check=True,
    )
    return of_train(scalars_in(folder / "model"))


@pytest.mark.journey
def test_losses_are_those_of_t5x_to_the_bit(backend: Callable[..., LocalRun], tmp_path: Path) -> None:
    exact = by_the_harness(backend(CONFIG, full_size=True, exact_numerics=True, slice="v3:1x1"))
    theirs = by_t5x(tmp_path, "v3:1x1")
    assert set(exact["train/loss"]) == set(range(1, 9))
    assert exact == theirs
    # In a folder of its own: in that of the run before, T5X would find its work done.
    cheap = by_the_harness(backend(CONFIG, full_size=True, slice="v3:1x1", model_dir=str(tmp_path / "cheap")))
    for tag, steps in theirs.items():
        assert cheap[tag] == pytest.approx(steps, rel=1e-5), tag


@pytest.mark.parametrize(("exact", "cheap"), [(False, 1), (True, 0)])
def test_it_is_compiled_as_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, exact: bool, cheap: int) -> None:
    calls = []
    monkeypatch.setattr(execution, "compile_cheaply", lambda: calls.append("cheaply"))
    for other in ("activate", "force_cpu_devices", "install_mesh", "configure_for_short_run", "share_steps"):
        monkeypatch.setattr(execution, other, lambda *_: None)
    monkeypatch.setattr(execution, "runtime_of", lambda _: Runtime("embedded", "0", "/t5x", ""))
    spec = RunSpec(("run.gin",), settings=RunSettings(exact_numerics=exact))
    execution.open_execution({"spec": spec.to_json(), "workspace": str(tmp_path)}, lambda _: None)
    assert len(calls) == cheap
