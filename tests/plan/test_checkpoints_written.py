"""The plan predicts the checkpoints that a run then writes."""

import types
from collections.abc import Callable

import numpy as np
import pytest

from t5x_harness.findings.rule import trained
from t5x_harness.plan.description import checkpoint_bytes, steps_written
from t5x_harness.spec import RunResult, Stage, StageResult


@pytest.mark.parametrize(
    ("first", "total", "period", "extra", "expected"),
    [
        pytest.param(0, 6, 2, (), [0, 2, 4, 6], id="whole-periods"),
        pytest.param(0, 5, 2, (), [0, 2, 4, 5], id="the-last-step-too"),
        pytest.param(0, 3, 10, (), [0, 3], id="shorter-than-a-period"),
        pytest.param(1003, 1010, 3, (), [1003, 1006, 1009, 1010], id="periods-count-from-the-first-step"),
        pytest.param(0, 6, 3, (2, 3, 9), [0, 2, 3, 6], id="steps-asked-for"),
        pytest.param(7, 7, 3, (), [7], id="nothing-to-train"),
    ],
)
def test_steps(first: int, total: int, period: int, extra: tuple[int, ...], expected: list[int]) -> None:
    assert steps_written(first, total, period, extra) == expected


def test_a_resumed_run_does_not_write_its_first_checkpoint_again() -> None:
    assert steps_written(4, 8, 2, first_is_there=True) == [6, 8]
    assert steps_written(8, 8, 2, first_is_there=True) == []


def test_bytes_are_those_of_every_array_and_only_parameters_take_the_save_dtype() -> None:
    def leaf(path: str, size: int, dtype: str) -> types.SimpleNamespace:
        return types.SimpleNamespace(path=path, size=size, dtype=np.dtype(dtype))

    leaves = (leaf("target/kernel", 100, "float32"), leaf("state/param_states/kernel/v", 100, "float32"))
    shapes = types.SimpleNamespace(leaves=(*leaves, leaf("state/step", 1, "int32")))
    assert checkpoint_bytes(shapes, None) == 804
    assert checkpoint_bytes(shapes, "bfloat16") == 604


def facts(result: StageResult) -> dict[str, str]:
    return dict(result.facts)


@pytest.mark.journey
def test_a_run_writes_what_was_planned(run_until: Callable[..., RunResult]) -> None:
    gin = trained(
        "TRAIN_STEPS = 5",
        "BATCH_SIZE = 8",
        "train_script.train.eval_period = 2",
        "train_script.train.random_seed = 0",
        "utils.SaveCheckpointConfig.period = 2",
        "utils.SaveCheckpointConfig.checkpoint_steps = [3, 5]",
        "utils.SaveCheckpointConfig.keep = 2",
        "utils.SaveCheckpointConfig.save_dataset = True",
        "utils.SaveCheckpointConfig.dtype = 'bfloat16'",
    )
    result = run_until(Stage.TRAIN, gin, full_size=True)
    assert result.passed, result.stages[-1].findings
    planned = facts(result.stage(Stage.PLAN))
    assert planned["checkpoints written"] == "5, from step 0 each 2 steps to 5, and at 3; the last 2 kept, 3 deleted"
    assert planned["starts from"] == "scratch: the config names no checkpoint"
    assert planned["state of the dataset"] == "saved in every checkpoint, a file for each host that reads data"
    assert planned["save dtype"] == "bfloat16 is not used by orbax: saved as float32"
    assert [c.step for c in result.checkpoints] == [4, 5]


def test_a_run_that_saves_nothing_says_so(plan: Callable[..., StageResult]) -> None:
    planned = facts(plan("utils.CheckpointConfig.save = None"))
    assert planned["checkpoints written"] == "none: no SaveCheckpointConfig is bound"
    assert "bytes of checkpoints" not in planned


@pytest.mark.parametrize(
    ("lines", "text", "lost"),
    [
        (
            ("utils.SaveCheckpointConfig.period = 400",),
            "up to 400 steps, those since the last checkpoint; at most 1 step if train.trainer_cls is "
            "@t5x_harness.preemption.Trainer",
            400,
        ),
        (
            (
                "from t5x_harness import preemption",
                "train_script.train.trainer_cls = @preemption.Trainer",
                "utils.SaveCheckpointConfig.period = 1_000_000",
            ),
            "at most 1 step, as the trainer saves on SIGTERM; with trainer.Trainer up to 10000 steps, those since the "
            "last checkpoint",
            1,
        ),
    ],
)
def test_the_cost_of_a_preemption_is_planned(
    plan: Callable[..., StageResult], lines: tuple[str, ...], text: str, lost: int
) -> None:
    result = plan(*lines)
    assert facts(result)["a preemption costs"] == text
    assert {m.name: m.value for m in result.measures}["steps_lost_to_a_preemption"] == lost
