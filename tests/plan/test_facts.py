"""The plan's facts about a run, in words and numbers, at the sizes that the config names."""

import dataclasses
import json
from collections.abc import Callable

import pytest

from t5x_harness.findings.rule import evaluated, inferred, task_files
from t5x_harness.plan.arrays import TEMPORARIES_UNKNOWN
from t5x_harness.spec import Finding, Outcome, Severity, StageResult

SCHEDULE = "utils.create_learning_rate_scheduler"
FROM_CHECKPOINT = (
    "utils.RestoreCheckpointConfig.path = 'gs://bucket/t5/checkpoint_1000000'",
    "utils.RestoreCheckpointConfig.mode = 'specific'",
)

OWN_RATE = ("import rates", "from t5x import trainer", "trainer.Trainer.learning_rate_fn = @rates.schedule")
OF_OPTAX = (
    "from t5x import optimizers",
    "import optax",
    "OPTIMIZER = @optimizers.adamw()",
    "optimizers.adamw.learning_rate = @optax.linear_schedule()",
    "optax.linear_schedule.init_value = 1.0",
    "optax.linear_schedule.end_value = 0.5",
    "optax.linear_schedule.transition_steps = 1000",
)
Plan = Callable[..., StageResult]
Find = Callable[..., Finding]


def facts(result: StageResult) -> dict[str, str]:
    found = dict(result.facts)
    assert len(found) == len(result.facts), "two facts have one name"
    return found


def rows(table: str) -> list[list[str]]:
    """Returns the cells of a table, without its header."""
    return [line.split() for line in table.splitlines()[1:]]


def test_batches_on_a_pod_with_microbatches(plan: Plan) -> None:
    result = plan(
        "from t5x import trainer",
        "trainer.Trainer.num_microbatches = 2",
        "partitioning.PjitPartitioner.model_parallel_submesh = (4, 1, 1, 2)",
        "BATCH_SIZE = 64",
        slice="v3-32",
    )
    said = facts(result)
    measured = {(m.name, m.of): (m.value, m.unit) for m in result.measures if m.step is None}
    assert measured["mesh", "data"] == (4, "devices")
    assert measured["batch_size", "train"] == (64, "examples")
    assert measured["batch_on_each_data_position", "train"] == (16, "examples")
    assert measured["tokens_in_a_train_step", ""] == (64 * 64, "tokens")
    assert measured["steps_to_train", ""] == (10_000, "steps")
    of_state = [measured["state_on_each_device", part][0] for part in ("parameters", "optimizer", "other", "all")]
    assert sum(of_state[:3]) == of_state[3] > 0
    assert measured["usable_memory_of_each_device", ""][1] == "bytes"
    assert f"{measured['parameters', ''][0]:,}" == rows(said["parameters"])[-1][2]
    rates = [(m.step, m.value) for m in result.measures if m.name == "learning_rate"]
    assert (rates[0][0], rates[-1][0]) == (0, 9_999)
    assert StageResult.from_json(json.loads(json.dumps(result.to_json()))) == result
    assert said["mesh"] == "data 4 x model 8"
    assert said["hosts"] == "4, which read 2 parts of the data (SeqIO shards), 2 hosts the same one"
    assert said["batches"].splitlines()[0].endswith("in each of 2 microbatches")
    assert rows(said["batches"]) == [["train", "64", "16", "32", "32"], ["train_eval", "64", "16", "32", "-"]]
    assert said["tokens in a train step"] == "4,096, padding included: 64 rows of 32 inputs + 32 targets"


def test_passes_over_the_data(plan: Plan) -> None:
    known = task_files(
        "splits=('train', 'validation')",
        "splits=('train', 'validation'), num_input_examples={'train': 4000, 'validation': 40}",
    )
    said = facts(plan("TRAIN_STEPS = 100", "BATCH_SIZE = 8", modules={"counting": known["counting.py"]}))
    assert said["epochs over counting train"] == (
        "0.2 if a row holds one example: 100 steps of 8 rows, 4000 examples in the sources"
    )
    assert said["train_eval reads"] == "20 batches of counting validation, every 1000 steps and at the end: 1 time"


def test_what_is_not_known_is_not_said(plan: Plan) -> None:
    many = task_files(
        "'inputs': ['one two', 'three'], 'targets': ['1 2', '3']", "'inputs': ['1'] * 65, 'targets': ['1'] * 65"
    )
    result = plan(modules={"counting": many["counting.py"]})
    assert not any(name.startswith("epochs over") for name in facts(result))
    assert "the epochs over counting train: its sources do not say how many examples they hold" in (result.not_checked)
    assert TEMPORARIES_UNKNOWN in result.not_checked


def test_a_split_that_was_read_whole_is_counted(plan: Plan) -> None:
    said = facts(plan("TRAIN_STEPS = 100", "BATCH_SIZE = 8"))
    assert said["epochs over counting train"] == (
        "400 if a row holds one example: 100 steps of 8 rows, 2 examples in the sources"
    )


def test_evaluation_of_predictions(plan: Plan) -> None:
    known = task_files(
        "splits=('train', 'validation')", "splits=('train', 'validation'), num_input_examples={'validation': 40}"
    )
    lines = (
        "utils.DatasetConfig.split = 'validation'",
        "utils.DatasetConfig.batch_size = 16",
        "CHECKPOINT_PATH = 'gs://b/m/checkpoint_1000'",
    )
    for limit, reads in (
        ((), "40 examples of {} in 3 batches"),
        (("seqio.Evaluator.num_examples = 8",), "8 examples of {} in 1 batch"),
    ):
        planned = plan(gin=evaluated(*lines, *limit), modules={"counting": known["counting.py"]})
        assert facts(planned)["dataset reads"] == reads.format("counting validation")


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
                f"{SCHEDULE}.factors = 'constant * linear_warmup'",
                f"{SCHEDULE}.warmup_steps = 500",
                f"{SCHEDULE}.step_offset = 1_000_000",
            ),
            [["1000000", "1e-08", "first", "step"], ["1000500", "1"], ["1019999", "1", "last", "step"]],
        ),
        (
            ("TRAIN_STEPS = 3000", *OWN_RATE),
            [["0", "0", "first", "step"], ["1000", "1"], ["2000", "0"], ["2999", "0.999", "last", "step"]],
        ),
        (
            ("TRAIN_STEPS = 3000", *OF_OPTAX),
            [["0", "1", "first", "step"], ["1000", "0.5"], ["2999", "0.5", "last", "step"]],
        ),
    ],
    ids=["t5x", "shifted", "own", "optax"],
)
def test_learning_rate(plan: Plan, lines: tuple[str, ...], expected: list[list[str]]) -> None:
    saw = "import jax.numpy as jnp\n\n\ndef schedule(step):\n    return 1.0 - jnp.abs(step % 2000 - 1000) / 1000.0\n"
    assert rows(facts(plan(*lines, modules={"rates": saw}))["learning rate"]) == expected


def test_a_constant_rate_is_one_number(plan: Plan) -> None:
    assert facts(plan(f"{SCHEDULE}.factors = 'constant'"))["learning rate"] == "1 at every step"


def test_a_rate_that_counts_otherwise_is_not_claimed(plan: Plan) -> None:
    """Optax counts its own updates, and a checkpoint may or may not contain the count."""
    result = plan(*FROM_CHECKPOINT, "TRAIN_STEPS = 1_020_000", *OF_OPTAX)
    assert "learning rate" not in facts(result)
    assert "the learning rate: it is not known from which step on it is counted" in result.not_checked


def test_a_custom_schedule_that_raises_is_reported(plan: Plan) -> None:
    raising = "def schedule(step):\n    raise RuntimeError('no rate today')\n"
    result = plan(*OWN_RATE, modules={"rates": raising})
    assert result.outcome is Outcome.FAILED
    assert any("no rate today" in error.message for error in result.errors)
    assert "parameters" in facts(result), "everything else is told before"


def test_steps_from_a_checkpoint_whose_step_is_not_known(plan: Plan) -> None:
    path = "utils.RestoreCheckpointConfig.path = 'gs://bucket/t5/best'"
    result = plan(path, "utils.RestoreCheckpointConfig.mode = 'latest'")
    assert "steps" not in facts(result)
    assert any(text.startswith("how many steps are trained: ") for text in result.not_checked)
    relative = plan(path, "utils.RestoreCheckpointConfig.mode = 'latest'", "TRAIN_STEPS_RELATIVE = 50")
    assert facts(relative)["steps"] == "50, from wherever the checkpoint is (TRAIN_STEPS_RELATIVE = 50)"


def test_the_state_by_parts(plan: Plan) -> None:
    said = facts(plan("partitioning.PjitPartitioner.num_partitions = 2"))
    state = {line.split("  ")[0]: line.split()[1:3] for line in said["train state on each device"].splitlines()}
    assert list(state) == ["parameters", "optimizer", "other", "all"]
    assert state["other"] == ["4", "B"]
    assert said["train state on each device"].endswith("% of the 15.5 GiB that a program may use")
    table = said["arrays of encoder/layers_*, 2 of each, float32"]
    assert rows(table)[6][:7] == ["mlp/wo/kernel", "mlp", "16,", "embed", "8", "model,", "-"]


def test_a_restore_that_casts_halves_the_parameters(plan: Plan) -> None:
    lines = ("utils.DatasetConfig.split = 'validation'", "CHECKPOINT_PATH = 'gs://b/m/checkpoint_1000'")
    said = facts(plan(gin=inferred(*lines)))
    assert any(name.startswith("arrays") and name.endswith("bfloat16") for name in said)
    whole = facts(plan(gin=inferred(*lines, "utils.RestoreCheckpointConfig.dtype = 'float32'")))
    sizes = [facts_["parameters on each device"].split()[1] for facts_ in (said, whole)]
    assert float(sizes[1]) == pytest.approx(2 * float(sizes[0]), rel=0.01)


def test_the_same_plan_twice(plan: Plan) -> None:
    """Nothing in a plan depends on folders, the time, or the order of a set."""
    lines = "partitioning.PjitPartitioner.num_partitions = 4", *FROM_CHECKPOINT, "TRAIN_STEPS = 1_000_100"
    first, second = plan(*lines), plan(*lines)
    assert first.facts == second.facts
    assert dataclasses.replace(first, seconds=0, log_tail="") == dataclasses.replace(second, seconds=0, log_tail="")


WARM_UP = (*FROM_CHECKPOINT, "TRAIN_STEPS = 1_020_000", f"{SCHEDULE}.warmup_steps = 1000")


@pytest.mark.parametrize(
    ("lines", "severity", "says"),
    [
        pytest.param(
            (*WARM_UP, f"{SCHEDULE}.factors = 'constant * linear_warmup * rsqrt_decay'"),
            Severity.NOTE,
            "the schedule warms up from step 0 to 1000, and the run begins at step 1000000",
            id="the-same-schedule-may-go-on",
        ),
        pytest.param(
            (*WARM_UP, f"{SCHEDULE}.factors = 'linear_decay'", f"{SCHEDULE}.decay_factor = 0.00001"),
            Severity.ERROR,
            "nothing is learnt",
            id="at-the-floor",
        ),
        pytest.param(
            (*WARM_UP, f"{SCHEDULE}.factors = 'linear_decay'", f"{SCHEDULE}.min_learning_rate = 0"),
            Severity.ERROR,
            "the learning rate is 0 at most from the first step to the last: nothing is learnt",
            id="at-zero",
        ),
        pytest.param(
            (*WARM_UP, f"{SCHEDULE}.factors = 'constant * decay_every'", f"{SCHEDULE}.steps_per_decay = 100_000"),
            Severity.WARNING,
            "has run down before the run begins: it is 0.000977 at step 1000000",
            id="run-down",
        ),
    ],
)
def test_a_schedule_that_is_over(find: Find, lines: tuple[str, ...], severity: Severity, says: str) -> None:
    found = find("GIN24", *lines)
    assert says in found.message
    assert found.severity is severity


@pytest.mark.parametrize(
    ("formula", "says", "fix"),
    [
        pytest.param("5e-4 * 0.5 ** ((step - 1_000_000) / 5000)", None, None, id="infinite-before"),
        pytest.param("5e-4 * 0.5 ** ((step - 1_000_000) / 50_000)", None, None, id="above-1-before"),
        pytest.param("1e-4 * (step < 1000) + 1e-5 * 0.04", "has run down", "count the schedule's steps", id="run-down"),
    ],
)
def test_a_custom_schedule_before_the_run(plan: Plan, formula: str, says: str | None, fix: str | None) -> None:
    """The finding and its fix do not name T5X's scheduler, which the run config still binds."""
    lines = (*FROM_CHECKPOINT, "TRAIN_STEPS = 1_010_000", *OWN_RATE)
    rates = f"def schedule(step):\n    return {formula}\n"
    found = [f for f in plan(*lines, modules={"rates": rates}).findings if f.code == "GIN24"]
    if says is None or fix is None:
        assert not found
        return
    (finding,) = found
    assert says in finding.message
    assert finding.fix.startswith(fix)
    assert finding.binding.endswith("Trainer.learning_rate_fn")


def test_uneven_microbatches_are_a_warning(plan: Plan) -> None:
    lines = ("from t5x import trainer", "trainer.Trainer.num_microbatches = 4", "BATCH_SIZE = 16")
    result = plan(*lines)
    assert result.outcome is Outcome.PASSED
    (found,) = (f for f in result.findings if f.code == "MSH11")
    assert found.severity is Severity.WARNING
    assert found.message == (
        "4 microbatches of the batch size 16 have 4 examples each, and the mesh's data axis has 8 positions: T5X "
        "shares them unevenly"
    )
    assert found.fix == "set trainer.Trainer.num_microbatches to a divisor of 2, or enlarge the batch"


def test_more_decode_steps_than_positions(plan: Plan, find: Find) -> None:
    lines = (
        "from t5x import decoding",
        "from t5x import models",
        "utils.DatasetConfig.split = 'validation'",
        "CHECKPOINT_PATH = 'gs://b/m/checkpoint_1000'",
        "models.EncoderDecoderModel.decode_fn = @decoding.temperature_sample",
    )
    steps = "decoding.temperature_sample.max_decode_steps ="
    found = find("INF07", gin=inferred(*lines, f"{steps} 33"))
    assert found.message == "max_decode_steps is 33, and predictions for dataset have 32 positions"
    assert plan(gin=inferred(*lines, f"{steps} 32")).outcome is Outcome.PASSED
    scored = "infer_script.infer.mode = 'score'", "decoding.temperature_sample.topp = 0.5"
    scoring = plan(gin=inferred(*lines, *scored))
    assert "INF07" not in {f.code for f in scoring.findings}, "nothing is decoded"


def test_a_vocabulary_that_wastes_part_of_a_tile_is_a_note(find: Find) -> None:
    found = find("SEQ13", "network.T5Config.vocab_size = 392")
    assert found.severity is Severity.NOTE
    assert found.fix == "round network.T5Config.vocab_size up to 512; no id uses the rows added"


@pytest.mark.parametrize(
    ("lines", "code", "severity", "says", "fix"),
    [
        pytest.param(
            (f"{SCHEDULE}.factors = 'constant * linear_warmup'", f"{SCHEDULE}.warmup_steps = 0"),
            "GIN24",
            Severity.ERROR,
            "the learning rate is nan at step 0",
            "set warmup_steps to at least 1",
            id="nan",
        ),
        pytest.param(
            (f"{SCHEDULE}.factors = 'constant'", f"{SCHEDULE}.base_learning_rate = 1.0"),
            "OPT01",
            Severity.WARNING,
            "is 1 at step 9999, far too much for Adafactor",
            "lower it: fine-tuning of T5 takes 0.001",
            id="large",
        ),
        pytest.param(
            (
                *FROM_CHECKPOINT,
                "TRAIN_STEPS = 1_010_000",
                f"{SCHEDULE}.factors = 'constant * rsqrt_decay'",
                f"{SCHEDULE}.base_learning_rate = 0.001",
            ),
            "OPT01",
            Severity.WARNING,
            "goes from 1e-06 at step 1000000 to 9.95e-07 at step 1009999",
            "which 'constant * rsqrt_decay' divides by the square root of the step",
            id="small",
        ),
        pytest.param(
            ("from t5x import trainer", f"trainer.Trainer.learning_rate_fn = @{SCHEDULE}"),
            "GIN20",
            Severity.ERROR,
            f"is @{SCHEDULE}, which is not a schedule but what makes one",
            f"write @{SCHEDULE}()",
            id="uncalled",
        ),
    ],
)
def test_a_learning_rate_that_learns_nothing(
    plan: Plan, lines: tuple[str, ...], code: str, severity: Severity, says: str, fix: str
) -> None:
    result = plan(*lines)
    (found,) = (f for f in result.findings if f.code in ("GIN20", "GIN24", "OPT01", "RUN01"))
    assert (found.code, found.severity) == (code, severity)
    assert says in found.message
    assert fix in (found.fix or "")
    assert str(found.location).startswith("run.gin:")


@pytest.mark.parametrize(
    "lines",
    [
        ("OPTIMIZER = @optimizers.sgd()", "optimizers.sgd.learning_rate = 1.0"),
        ("OPTIMIZER = @optimizers.adamw()", "optimizers.adamw.learning_rate = 3e-6"),
        (f"{SCHEDULE}.warmup_steps = 30",),
    ],
    ids=["sgd", "adamw", "short-warm-up"],
)
def test_learning_rates_that_are_as_they_should_be(plan: Plan, lines: tuple[str, ...]) -> None:
    result = plan("from t5x import optimizers", *lines)
    assert result.outcome is Outcome.PASSED, result.findings
    assert not [f for f in result.findings if f.code == "OPT01"]


def test_how_many_partitions_would_do(find: Find) -> None:
    heads = ("partitioning.PjitPartitioner.num_partitions = 4", "network.T5Config.num_heads = 6")
    uneven = find("MSH06", *heads)
    assert (uneven.fix or "").endswith("network.T5Config.num_heads divisible by 4, or use fewer partitions: 1 or 2")
    large = (
        "network.T5Config.emb_dim = 16_384",
        "network.T5Config.mlp_dim = 131_072",
        "partitioning.PjitPartitioner.num_partitions = 2",
    )
    too_large = find("MSH09", *large)
    assert too_large.binding == "partitioning.PjitPartitioner.num_partitions"
    assert too_large.location is not None
    assert (too_large.fix or "").startswith("use num_partitions = 8 (12.0 GiB on each device), ")
    huge = ("network.T5Config.emb_dim = 65_536", "network.T5Config.mlp_dim = 524_288")
    larger = "use a larger slice: num_partitions = 8, all devices of v3-8, leaves "
    assert (find("MSH09", *huge).fix or "").startswith(larger)


def test_a_constant_of_gin_is_its_value(plan: Plan) -> None:
    constants = "import gin\n\ngin.constant('of_mine.STEPS', 4000)\n"
    result = plan("import of_mine", "TRAIN_STEPS = %of_mine.STEPS", modules={"of_mine": constants})
    assert result.outcome is Outcome.PASSED, result.findings
    assert "4000" in facts(result)["steps"]


def test_a_run_that_is_to_save_nothing_is_not_a_mistake(find: Find) -> None:
    assert find("CKP23", "utils.CheckpointConfig.save = None").severity is Severity.NOTE


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("BATCH_SIZE = 0", "GIN08", "the batch size of train and train_eval is 0"),
        ("BATCH_SIZE = -16", "GIN08", "the batch size of train and train_eval is -16"),
        ("network.T5Config.num_decoder_layers = 1_000_000_000", "MSH09", "num_decoder_layers = 1,000,000,000: "),
    ],
)
def test_sizes_that_cannot_be_meant(plan: Plan, line: str, code: str, says: str) -> None:
    errors = plan(line).errors
    assert [error.code for error in errors] == [code]
    assert says in errors[0].message
