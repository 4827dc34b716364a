"""What a run evaluates with is compiled while its train step is, and once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.spec import RunSpec
from t5x_harness.workers import Zygote

HERE = Path(__file__).parent
PATHS = [str(HERE), str(HERE.parent / "reference")]

BESIDE = [
    ["jit(one_eval_step)", "t5x-compile_0"],
    ["jit(step)", "t5x-compile_0"],  # the task has metrics of predictions
    ["jit(step)", "t5x-compile_0"],  # and of scores
    ["jit(train_step)", "MainThread"],
]
Start = Callable[..., Any]


@pytest.fixture
def start(zygote: Zygote, train_text: str, tmp_path: Path) -> Iterator[Start]:
    """Starts the run of a train config that these lines end."""
    runs = []

    def make(extra: str) -> Any:
        (tmp_path / "config.gin").write_text(train_text + extra)
        spec = RunSpec(
            gin_files=("config.gin",), slice="v3:1x1", runtime="embedded", python_path=tuple(PATHS), cwd=str(tmp_path)
        )
        argument = {"spec": spec.to_json(), "workspace": str(tmp_path / "run")}
        log = tmp_path / "run.log"
        runs.append(zygote.start("compiling_objects:Watched", argument, log=log, cwd=tmp_path, python_path=PATHS))
        return runs[-1]

    yield make
    for run in runs:
        run.close()


def test_evaluations_are_compiled_beside_the_train_step_and_not_again(start: Start, infer_eval_text: str) -> None:
    run = start(infer_eval_text)
    assert run.call("train", timeout=300) == "passed"
    assert run.call("compiled") == BESIDE
    assert run.call("evaluate", timeout=300) == "passed"
    assert run.call("compiled") == BESIDE


def test_without_evaluations_the_train_step_alone_is_compiled(start: Start) -> None:
    run = start("\ntrain_script.train.train_eval_dataset_cfg = None\n")
    assert run.call("train", timeout=300) == "passed"
    assert run.call("compiled") == [["jit(train_step)", "MainThread"]]


def test_what_cannot_be_compiled_fails_the_evaluation_that_needs_it(
    start: Start, infer_eval_text: str, tmp_path: Path
) -> None:
    run = start(f"{infer_eval_text}\nmodels.EncoderDecoderModel.decode_fn = @stage_tasks.decode_nothing\n")
    assert run.call("train", timeout=300) == "failed"
    assert "no decoding today" in (tmp_path / "run.log").read_text()
    assert ["jit(train_step)", "MainThread"] in run.call("compiled")
