"""Two hosts train, evaluate, infer and go on together; what only hosts show is found, and named by the host."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from local_run import LocalRun

from t5x_harness.spec import Finding, Hosts, Outcome, Stage, StageResult

pytestmark = pytest.mark.journey

Backend = Callable[..., LocalRun]
Trained = Callable[[str], StageResult]

POD = {"slice": "v4-16", "hosts": Hosts.EMULATED}
SAVED = "utils.SaveCheckpointConfig.save_dataset = True\n"
OWN_TRAINER = """
import mine
train_script.train.trainer_cls = @mine.Trainer
mine.Trainer.num_microbatches = None
mine.Trainer.learning_rate_fn = @utils.create_learning_rate_scheduler()
"""
IMPORTS = """
import os, time
import gin, jax
from jax.experimental import multihost_utils
from t5x import trainer, utils
"""
TRAINER = """
@gin.configurable
class Trainer(trainer.Trainer):
    def train(self, batch_iter, num_steps, start_step=None):
        if jax.process_index() == 1 and int(self.train_state.step) == 2:
            {does}
        return super().train(batch_iter, num_steps, start_step)
"""


@pytest.fixture
def trained(backend: Backend, train_text: str, tmp_path: Path) -> Trained:
    """Trains on two hosts with a module of the user's own, and returns the result of the training."""

    def run(module: str, extra: str = OWN_TRAINER) -> StageResult:
        (tmp_path / "mine.py").write_text(IMPORTS + module)
        made = backend(train_text + extra, **POD)
        made.passed(Stage.RESOLVE, Stage.PLAN)
        return made.stage(Stage.TRAIN)

    return run


def only(result: StageResult) -> Finding:
    assert result.outcome is Outcome.FAILED
    (finding,) = result.errors
    return finding


def test_two_hosts_go_on_to_the_bit_after_one_was_killed(
    backend: Backend, train_text: str, infer_eval_text: str
) -> None:
    made = backend(train_text + infer_eval_text + SAVED, resume=True, preempt="host=1", **POD)
    planned = made.passed(Stage.RESOLVE, Stage.PLAN)
    assert dict(planned.facts)["hosts"] == "2, each a process here, in about 1.2 GiB of memory"
    made.passed(Stage.TRAIN, Stage.EVAL, Stage.INFER)
    result = made.passed(Stage.RESUME)
    assert (result.findings, result.not_checked) == ((), ())
    facts = dict(result.facts)
    assert facts["ended"] == "by kill, before the batch of step 4 was taken, with checkpoint_0, checkpoint_2"
    assert facts["examples"] == "trained twice: 0, never: 0"
    assert facts["compared"] == "the states of 2 steps after the restart, equal to the bit"
    done = made.result()
    assert [checkpoint.step for checkpoint in done.checkpoints] == [0, 2, 4]
    assert len(done.predictions) == 16  # of eval and infer


def test_an_inference_goes_on_after_one_of_its_hosts_was_killed(backend: Backend, infer_text: str) -> None:
    made = backend(infer_text, resume=True, preempt="host=1", **POD)
    result = made.passed(Stage.RESOLVE, Stage.PLAN, Stage.INFER, Stage.RESUME)
    assert (result.findings, result.not_checked) == ((), ())
    facts = dict(result.facts)
    assert re.fullmatch("chunk 1 of 2; [01] made twice", facts["went on from"])  # the other host may have begun it
    assert facts["results"] == "16 lines of 2 files and 0 scalars, equal"


def test_only_as_many_hosts_as_before_find_their_position_in_the_data(backend: Backend, train_text: str) -> None:
    made = backend(train_text + SAVED, resume=True, preempt="host=1,on=v4-8", **POD)
    made.passed(Stage.RESOLVE, Stage.PLAN, Stage.TRAIN)
    error = only(made.stage(Stage.RESUME))
    assert error.code == "CKP16"
    assert "/checkpoint_2 has no position in the data for host 0 of 1: other hosts saved it" in error.message


def test_a_pod_goes_on_with_one_host(backend: Backend, train_text: str) -> None:
    made = backend(train_text, resume=True, preempt="host=0,how=stop,on=v4-8", **POD)
    result = made.passed(Stage.RESOLVE, Stage.PLAN, Stage.TRAIN, Stage.RESUME)
    assert dict(result.facts)["restored"].endswith("arrays, equal to those at step 2 to the bit")
    expected = (
        "the steps after a restart with v4-8: other hosts read other batches, and another mesh adds in another order"
    )
    assert result.not_checked == (expected,)


@pytest.mark.parametrize(
    ("does", "code", "says"),
    [
        (
            "os.kill(os.getpid(), 9)",
            "POD12",
            r"train ended: host 1 of 2, in train at step 2 of 4: The run was killed by SIGKILL .*",
        ),
        ("raise ValueError('no data')", "USR01", r"host 1 of 2: .*ValueError: no data.*"),
        (
            "time.sleep(600)",
            "POD06",
            r"train ended: host 1 of 2, in train at step 2 of 4 does not go on, at .*mine\.py:\d+ in train; host 0 "
            r"waits for it",
        ),
    ],
    ids=["killed", "raised", "sleeps"],
)
def test_a_host_that_ends_or_does_not_go_on_is_named(trained: Trained, does: str, code: str, says: str) -> None:
    finding = only(trained(TRAINER.format(does=does)))
    assert finding.code == code, finding
    assert re.fullmatch(says, finding.message), finding.message


def test_a_barrier_that_only_one_host_has_is_named(trained: Trained) -> None:
    finding = only(trained(TRAINER.format(does="multihost_utils.sync_global_devices('mine')")))
    assert finding.code.startswith("POD"), finding
    assert "host 1" in finding.message


def test_hosts_that_all_read_the_same_part(trained: Trained) -> None:
    module = """
@gin.configurable
def first_part(cfg, shard_id, num_shards, *args, **kwargs):
    return utils.get_dataset(cfg, 0, num_shards, *args, **kwargs)
"""
    extra = "\nimport mine\ntrain_script.train.get_dataset_fn = @mine.first_part\n"
    finding = only(trained(module, extra))
    assert finding.code == "POD04"
    assert finding.message == "hosts 0 and 1 read different parts of the data, and have the same 4 examples at step 0"


DIFFERENT = "hosts 0 and 1 hold different values of what should be the same"
OTHER_VALUES = """
@gin.configurable
class Trainer(trainer.Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if jax.process_index() == 1 and int(self.train_state.step) >= {step}:
            self.train_state = self.train_state.replace_params(jax.tree.map(changed, self.train_state.params))


def changed(value):
    pieces = [jax.device_put(1 + jax.device_get(shard.data), shard.device) for shard in value.addressable_shards]
    return jax.make_array_from_single_device_arrays(value.shape, value.sharding, pieces)
"""


def test_hosts_that_hold_different_values(trained: Trained) -> None:
    finding = only(trained(OTHER_VALUES.format(step=0)))
    assert finding.code == "POD23"
    assert finding.message.startswith(f"{DIFFERENT} at step 0: target/")


OTHER_CLOCK = """
if os.environ["T5X_HARNESS_POD"].endswith(",1"):
    now = time.time
    time.time = lambda: now() + 3600


@gin.configurable
class Trainer(trainer.Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        scale = 1 + time.time() // 3600 % 7 / 100
        self.train_state = self.train_state.replace_params(jax.tree.map(lambda x: x * scale, self.train_state.params))
"""


def test_values_that_come_from_the_clock_of_a_host_that_is_an_hour_ahead(trained: Trained) -> None:
    finding = only(trained(OTHER_CLOCK))
    assert finding.code == "POD23"
    assert finding.message.startswith(f"{DIFFERENT} at step 0: target/")
    assert "the clock" in str(finding.fix)


def test_a_host_that_restores_another_state(backend: Backend, train_text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(IMPORTS + OTHER_VALUES.format(step=2))
    made = backend(train_text + OWN_TRAINER, resume=True, preempt="host=1", **POD)
    made.passed(Stage.RESOLVE, Stage.PLAN, Stage.TRAIN)
    finding = only(made.stage(Stage.RESUME))
    assert finding.code == "POD23"
    assert finding.message.startswith(f"{DIFFERENT} at step 2: target/")
