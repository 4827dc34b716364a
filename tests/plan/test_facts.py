"""What the plan says of a run, in words and numbers, at the sizes that the config names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from t5x_harness.backends.local import LocalBackend
from t5x_harness.resolve import examples
from t5x_harness.spec import Outcome, RunSpec, Severity, Stage, StageResult
from t5x_harness.workers import Zygote

FROM_CHECKPOINT = (
    "utils.RestoreCheckpointConfig.path = 'gs://bucket/t5/checkpoint_1000000'",
    "utils.RestoreCheckpointConfig.mode = 'specific'",
)

PlanOn = Callable[..., StageResult]


@pytest.fixture
def plan_on(zygote: Zygote, tmp_path: Path) -> PlanOn:
    """Plans a config on a slice; further files may replace the examples'."""

    def planned(gin: str, slice_: str = "v3-8", **files: str) -> StageResult:
        for name, text in {**examples.FILES, **{f"{k}.py": v for k, v in files.items()}, "run.gin": gin}.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        spec = RunSpec(("run.gin",), slice=slice_, runtime="embedded", python_path=(str(tmp_path),), cwd=str(tmp_path))
        with LocalBackend(spec, zygote=zygote, workspace=tmp_path / "work", timeout=300) as backend:
            return backend.stage(Stage.PLAN)

    return planned


def facts(result: StageResult) -> dict[str, str]:
    found = dict(result.facts)
    assert len(found) == len(result.facts), "two facts have one name"
    return found


def rows(table: str) -> list[list[str]]:
    """The cells of a table, its head left out."""
    return [line.split() for line in table.splitlines()[1:]]


def test_batches_on_a_pod_with_microbatches(plan_on: PlanOn) -> None:
    result = plan_on(
        examples.trained(
            "from t5x import trainer",
            "trainer.Trainer.num_microbatches = 2",
            "partitioning.PjitPartitioner.model_parallel_submesh = (4, 1, 1, 2)",
            "BATCH_SIZE = 64",
        ),
        "v3-32",
    )
    said = facts(result)
    assert said["mesh"] == "data 4 x model 8"
    assert said["hosts"] == "4, which read 2 parts of the data (SeqIO shards), 2 hosts the same one"
    assert said["batches"].splitlines()[0].endswith("in each of 2 microbatches")
    assert rows(said["batches"]) == [["train", "64", "16", "32", "32"], ["train_eval", "64", "16", "32", "-"]]
    assert said["tokens in a train step"] == "4,096, padding included: 64 rows of 32 inputs + 32 targets"


def test_passes_over_the_data(plan_on: PlanOn) -> None:
    known = examples.files(
        "splits=('train', 'validation')",
        "splits=('train', 'validation'), num_input_examples={'train': 4000, 'validation': 40}",
    )
    said = facts(plan_on(examples.trained("TRAIN_STEPS = 100", "BATCH_SIZE = 8"), counting=known["counting.py"]))
    assert said["passes over counting train"] == (
        "0.2 if a row holds one example: 100 steps of 8 rows, 4000 examples in the sources"
    )
    assert said["train_eval reads"] == "20 batches of counting validation, every 1000 steps and at the end: 1 time"


def test_what_is_not_known_is_not_said(plan_on: PlanOn) -> None:
    result = plan_on(examples.trained())
    assert not any(name.startswith("passes over") for name in facts(result))
    assert "how often counting train is passed over: its sources do not say how many examples they hold" in (
        result.not_checked
    )


def test_evaluation_of_predictions(plan_on: PlanOn) -> None:
    known = examples.files(
        "splits=('train', 'validation')", "splits=('train', 'validation'), num_input_examples={'validation': 40}"
    )
    lines = (
        "utils.DatasetConfig.split = 'validation'",
        "utils.DatasetConfig.batch_size = 16",
        "CHECKPOINT_PATH = 'gs://b/m/checkpoint_1000'",
    )
    text = known["counting.py"]
    assert facts(plan_on(examples.evaluated(*lines), counting=text))["dataset reads"] == (
        "40 examples of counting validation in 3 batches"
    )
    limited = examples.evaluated(*lines, "seqio.Evaluator.num_examples = 8")
    assert facts(plan_on(limited, counting=text))["dataset reads"] == "8 examples of counting validation in 1 batch"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ("TRAIN_STEPS = 100_000",),
            [["0", "0.01", "first", "step"], ["10000", "0.01"], ["99999", "0.003162", "last", "step"]],
        ),
        (
            (
                *FROM_CHECKPOINT,
                "TRAIN_STEPS = 1_020_000",
                "utils.create_learning_rate_scheduler.factors = 'constant * linear_warmup'",
                "utils.create_learning_rate_scheduler.warmup_steps = 500",
                "utils.create_learning_rate_scheduler.step_offset = 1_000_000",
            ),
            [["1000000", "1e-08", "first", "step"], ["1000500", "1"], ["1019999", "1", "last", "step"]],
        ),
        (
            (
                "TRAIN_STEPS = 3000",
                "import rates",
                "from t5x import trainer",
                "trainer.Trainer.learning_rate_fn = @rates.saw",
            ),
            [["0", "0", "first", "step"], ["1000", "1"], ["2000", "0"], ["2999", "0.999", "last", "step"]],
        ),
        (
            (
                "TRAIN_STEPS = 3000",
                "from t5x import optimizers",
                "import optax",
                "OPTIMIZER = @optimizers.adamw()",
                "optimizers.adamw.learning_rate = @optax.linear_schedule()",
                "optax.linear_schedule.init_value = 1.0",
                "optax.linear_schedule.end_value = 0.5",
                "optax.linear_schedule.transition_steps = 1000",
            ),
            [["0", "1", "first", "step"], ["1000", "0.5"], ["2999", "0.5", "last", "step"]],
        ),
    ],
    ids=["t5x", "shifted", "own", "optax"],
)
def test_learning_rate(plan_on: PlanOn, lines: tuple[str, ...], expected: list[list[str]]) -> None:
    saw = "import jax.numpy as jnp\n\n\ndef saw(step):\n    return 1.0 - jnp.abs(step % 2000 - 1000) / 1000.0\n"
    assert rows(facts(plan_on(examples.trained(*lines), rates=saw))["learning rate"]) == expected


def test_a_constant_rate_is_one_number(plan_on: PlanOn) -> None:
    lines = ("utils.create_learning_rate_scheduler.factors = 'constant'",)
    assert facts(plan_on(examples.trained(*lines)))["learning rate"] == "1 at every step"


def test_a_rate_that_counts_otherwise_is_not_claimed(plan_on: PlanOn) -> None:
    """Optax counts its own updates, which a checkpoint may or may not bring along."""
    lines = ("TRAIN_STEPS = 1_020_000", "from t5x import optimizers", "import optax", "OPTIMIZER = @optimizers.adamw()")
    schedule = (
        "optimizers.adamw.learning_rate = @optax.linear_schedule()",
        "optax.linear_schedule.init_value = 1.0",
        "optax.linear_schedule.end_value = 0.5",
        "optax.linear_schedule.transition_steps = 1000",
    )
    result = plan_on(examples.trained(*FROM_CHECKPOINT, *lines, *schedule))
    assert "learning rate" not in facts(result)
    assert "the learning rate: it is not known from which step on it is counted" in result.not_checked


def test_a_schedule_of_ones_own_that_raises_is_told(plan_on: PlanOn) -> None:
    raising = "def schedule(step):\n    raise RuntimeError('no rate today')\n"
    lines = ("import rates", "from t5x import trainer", "trainer.Trainer.learning_rate_fn = @rates.schedule")
    result = plan_on(examples.trained(*lines), rates=raising)
    assert result.outcome is Outcome.FAILED
    assert any("no rate today" in error.message for error in result.errors)
    assert "parameters" in facts(result), "everything else is told before"


def test_steps_from_a_checkpoint_whose_step_is_not_known(plan_on: PlanOn) -> None:
    path = "utils.RestoreCheckpointConfig.path = 'gs://bucket/t5/best'"
    result = plan_on(examples.trained(path, "utils.RestoreCheckpointConfig.mode = 'latest'"))
    assert "steps" not in facts(result)
    assert any(text.startswith("how many steps are trained: ") for text in result.not_checked)
    relative = plan_on(
        examples.trained(path, "utils.RestoreCheckpointConfig.mode = 'latest'", "TRAIN_STEPS_RELATIVE = 50")
    )
    assert facts(relative)["steps"] == "50, from wherever the checkpoint is (TRAIN_STEPS_RELATIVE = 50)"


def test_the_state_by_parts(plan_on: PlanOn) -> None:
    said = facts(plan_on(examples.trained("partitioning.PjitPartitioner.num_partitions = 2")))
    state = {line.split("  ")[0]: line.split()[1:3] for line in said["train state on each device"].splitlines()}
    assert list(state) == ["parameters", "optimizer", "other", "all"]
    assert state["other"] == ["4", "B"]
    assert said["train state on each device"].endswith("% of the 15.5 GiB that a program may use")
    table = said["arrays of encoder/layers_*, 2 of each, float32"]
    assert rows(table)[6][:7] == ["mlp/wo/kernel", "mlp", "16,", "embed", "8", "model,", "-"]


def test_a_restore_that_casts_halves_the_parameters(plan_on: PlanOn) -> None:
    lines = ("utils.DatasetConfig.split = 'validation'", "CHECKPOINT_PATH = 'gs://b/m/checkpoint_1000'")
    said = facts(plan_on(examples.inferred(*lines)))
    assert any(name.startswith("arrays") and name.endswith("bfloat16") for name in said)
    whole = facts(plan_on(examples.inferred(*lines, "utils.RestoreCheckpointConfig.dtype = 'float32'")))
    sizes = [facts_["parameters on each device"].split()[1] for facts_ in (said, whole)]
    assert float(sizes[1]) == pytest.approx(2 * float(sizes[0]), rel=0.01)


def test_the_same_plan_twice(plan_on: PlanOn) -> None:
    """Nothing in it depends on folders, the time, or the order of a set."""
    gin = examples.trained(
        "partitioning.PjitPartitioner.num_partitions = 4", *FROM_CHECKPOINT, "TRAIN_STEPS = 1_000_100"
    )
    first, second = plan_on(gin), plan_on(gin)
    assert first.facts == second.facts
    assert dataclasses.replace(first, seconds=0, log_tail="") == dataclasses.replace(second, seconds=0, log_tail="")


WARM_UP = (
    *FROM_CHECKPOINT,
    "TRAIN_STEPS = 1_020_000",
    "utils.create_learning_rate_scheduler.warmup_steps = 1000",
)


@pytest.mark.parametrize(
    ("lines", "severity", "says"),
    [
        pytest.param(
            (*WARM_UP, "utils.create_learning_rate_scheduler.factors = 'constant * linear_warmup * rsqrt_decay'"),
            Severity.NOTE,
            "the schedule warms up from step 0 to 1000, and the run begins at step 1000000",
            id="the-same-schedule-may-go-on",
        ),
        pytest.param(
            (
                *WARM_UP,
                "utils.create_learning_rate_scheduler.factors = 'linear_decay'",
                "utils.create_learning_rate_scheduler.decay_factor = 0.00001",
            ),
            Severity.WARNING,
            "nothing is learnt",
            id="at-the-floor",
        ),
        pytest.param(
            (
                *WARM_UP,
                "utils.create_learning_rate_scheduler.factors = 'constant * decay_every'",
                "utils.create_learning_rate_scheduler.steps_per_decay = 100_000",
            ),
            Severity.WARNING,
            "has run down before the run begins: it is 0.000977 at step 1000000",
            id="run-down",
        ),
    ],
)
def test_a_schedule_that_is_over(plan_on: PlanOn, lines: tuple[str, ...], severity: Severity, says: str) -> None:
    (found,) = (f for f in plan_on(examples.trained(*lines)).findings if f.code == "GIN24")
    assert says in found.message
    assert found.severity is severity


def test_uneven_microbatches_are_a_warning(plan_on: PlanOn) -> None:
    lines = ("from t5x import trainer", "trainer.Trainer.num_microbatches = 4", "BATCH_SIZE = 16")
    result = plan_on(examples.trained(*lines))
    assert result.outcome is Outcome.PASSED
    (found,) = (f for f in result.findings if f.code == "MSH11")
    assert found.severity is Severity.WARNING
    assert found.message == (
        "4 microbatches of the batch size 16 have 4 examples each, and the mesh's data axis has 8 positions: T5X "
        "shares them unevenly"
    )
    assert found.fix == "set trainer.Trainer.num_microbatches to a divisor of 2, or enlarge the batch"


def test_more_decode_steps_than_positions(plan_on: PlanOn) -> None:
    lines = (
        "from t5x import decoding",
        "from t5x import models",
        "utils.DatasetConfig.split = 'validation'",
        "CHECKPOINT_PATH = 'gs://b/m/checkpoint_1000'",
        "models.EncoderDecoderModel.decode_fn = @decoding.temperature_sample",
    )
    result = plan_on(examples.inferred(*lines, "decoding.temperature_sample.max_decode_steps = 33"))
    (found,) = (f for f in result.findings if f.code == "INF07")
    assert found.message == "max_decode_steps is 33, and predictions for dataset have 32 positions"
    fitting = plan_on(examples.inferred(*lines, "decoding.temperature_sample.max_decode_steps = 32"))
    assert fitting.outcome is Outcome.PASSED
    scoring = plan_on(
        examples.inferred(*lines, "infer_script.infer.mode = 'score'", "decoding.temperature_sample.topp = 0.5")
    )
    assert "INF07" not in {f.code for f in scoring.findings}, "nothing is decoded"


def test_a_vocabulary_that_wastes_part_of_a_tile_is_a_note(plan_on: PlanOn) -> None:
    result = plan_on(examples.trained("network.T5Config.vocab_size = 392"))
    (found,) = (f for f in result.findings if f.code == "SEQ13")
    assert found.severity is Severity.NOTE
    assert found.fix == "round network.T5Config.vocab_size up to 512; no id uses the rows added"
