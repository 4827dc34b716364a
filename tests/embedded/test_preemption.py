"""On SIGTERM, the trainer for preempted jobs ends the training at a step that is saved, and that all hosts agree on."""

import contextlib
import dataclasses
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gin
import jax
import pytest
import t5x.trainer
from absl import logging
from jax.experimental import multihost_utils
from recorded import REFERENCE, Tolerance, differences, record
from t5x.trainer import PreemptionError

from t5x_harness import preemption
from t5x_harness.slices.pod import Pod
from t5x_harness.workers.errors import RunRaised

PREEMPTED = """
import preempted
train_script.train.trainer_cls = @preempted.Trainer
train_script.train.eval_period = 100
utils.SaveCheckpointConfig.period = 100
utils.SaveCheckpointConfig.save_dataset = True
"""


class Base:
    """A trainer with a loop like T5X's, whose state is a number of steps."""

    def __init__(self, state: int = 0) -> None:
        self.train_state: Any = SimpleNamespace(step=state)
        self._compiled_train_step: Any = None
        self._partitioned_train_step = lambda state, _: (SimpleNamespace(step=state.step + 1), {})
        self.closed = False

    def train(self, batch_iter: Iterator[Any], num_steps: int, start_step: int) -> str:
        state = self.train_state
        for _ in range(num_steps):
            state, _ = (self._compiled_train_step or self._partitioned_train_step)(state, next(batch_iter))
        self.train_state = state
        return f"metrics of {num_steps} steps"

    def close(self) -> None:
        self.closed = True


class Trainer(preemption.Preemptible, Base):
    """The trainer under test."""


@pytest.fixture(autouse=True)
def same_handler() -> Iterator[None]:
    """Restores the handler of SIGTERM after each test."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The warnings of the module."""
    lines: list[str] = []
    monkeypatch.setattr(logging, "warning", lambda text, *values: lines.append(text % values))
    return lines


def batches_with_signal(at: int, drawn: list[int] | None = None) -> Iterator[int]:
    """Yields numbers, and sends this process SIGTERM before it yields the one named ``at``."""
    for number in range(100):
        if number == at:
            os.kill(os.getpid(), signal.SIGTERM)
        if drawn is not None:
            drawn.append(number)
        yield number


def test_the_step_during_which_the_signal_came_is_the_last_and_is_kept() -> None:
    trainer, drawn = Trainer(), list[int]()
    with pytest.raises(PreemptionError, match=r"^received SIGTERM: the training ends at step 4$"):
        trainer.train(batches_with_signal(3, drawn), 10, start_step=0)
    assert trainer.train_state.step == 4
    assert drawn == [0, 1, 2, 3]  # a saved iterator goes on with the next batch
    assert trainer._compiled_train_step is None


def test_without_a_signal_it_trains_as_before() -> None:
    trainer = Trainer(7)
    assert trainer.train(iter(range(100)), 10, start_step=None) == "metrics of 10 steps"
    assert trainer.train_state.step == 17


def test_the_signal_in_the_last_step_of_a_loop_ends_the_training_there() -> None:
    trainer = Trainer()
    with pytest.raises(PreemptionError, match="ends at step 10"):
        trainer.train(batches_with_signal(9), 10, start_step=0)
    assert trainer.train_state.step == 10


def test_after_a_signal_between_loops_it_takes_a_step_because_the_state_may_be_saved_already() -> None:
    trainer = Trainer()
    batches = iter(range(100))
    trainer.train(batches, 10, start_step=0)
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(PreemptionError, match="ends at step 11"):
        trainer.train(batches, 10, start_step=10)
    assert trainer.train_state.step == 11


@pytest.mark.parametrize("how", ["closed", "forgotten"])
def test_the_previous_handler_is_called_and_put_back(how: str) -> None:
    received: list[int] = []

    def previous(number: int, frame: Any) -> None:
        received.append(number)

    signal.signal(signal.SIGTERM, previous)
    trainer = Trainer()
    with contextlib.suppress(PreemptionError):
        trainer.train(batches_with_signal(3), 10, start_step=0)
    assert received == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) != previous  # a second SIGTERM would end the emergency checkpoint
    if how == "closed":
        trainer.close()
        assert trainer.closed
    del trainer
    assert signal.getsignal(signal.SIGTERM) == previous


def test_a_previous_handler_that_exits_does_not_end_the_step(logged: list[str]) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    with pytest.raises(PreemptionError, match="ends at step 4"):
        Trainer().train(batches_with_signal(3), 10, start_step=0)
    assert logged[-1] == "The previous handler of SIGTERM wants to exit; the checkpoint is written first."


def test_a_trainer_that_never_trains_leaves_the_handler_alone() -> None:
    Trainer().close()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_in_another_thread_there_is_no_handler(logged: list[str]) -> None:
    thread = threading.Thread(target=lambda: Trainer().train(iter(range(9)), 2, start_step=0), name="mine")
    thread.start()
    thread.join()
    assert logged == [
        "A preemption costs the steps since the last checkpoint: Python handles SIGTERM in the main thread only, and "
        "T5X trains in the thread mine."
    ]


def test_a_t5x_without_the_error_is_named(monkeypatch: pytest.MonkeyPatch, logged: list[str]) -> None:
    monkeypatch.delattr(t5x.trainer, "PreemptionError")
    trainer = Trainer()
    trainer.train(iter(range(9)), 2, start_step=0)
    trainer.train(iter(range(9)), 2, start_step=2)
    assert logged == [
        f"{t5x.trainer.__file__} has no PreemptionError, so this T5X writes no emergency checkpoint: a preemption "
        "costs the steps since the last checkpoint. Update T5X."
    ]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("lacks", ["jax.distributed", "the service"])
def test_hosts_without_the_service_train_on_and_the_log_says_the_fix(
    monkeypatch: pytest.MonkeyPatch, logged: list[str], lacks: str
) -> None:
    def refuse(step: int) -> bool:
        raise RuntimeError("Preemption sync manager has not been initialized.")

    monkeypatch.setattr(jax, "process_count", lambda: 4)
    if lacks == "the service":
        monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(multihost_utils, "reached_preemption_sync_point", refuse)
    trainer = Trainer()
    trainer.train(iter(range(9)), 2, start_step=0)
    trainer.train(iter(range(9)), 2, start_step=2)
    missing = "jax.distributed is not initialized"
    assert logged == [
        "The 4 hosts cannot agree on a step to end at, so a preemption costs the steps since the last checkpoint. "
        "Start the program of every host with JAX_ENABLE_PREEMPTION_SERVICE=1 in its environment. What is missing: "
        + (missing if lacks == "jax.distributed" else "Preemption sync manager has not been initialized.")
    ]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


class Service:
    """JAX's service: it answers True for the step after the largest that a host asked about before the notice."""

    def __init__(self, agreed: int) -> None:
        self._agreed = agreed
        self.asked: list[int] = []

    def reached(self, step: int) -> bool:
        self.asked.append(step)
        return step == self._agreed


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Service]:
    """Makes this process one of two hosts, which agree on a step."""

    def make(agreed: int) -> Service:
        service = Service(agreed)
        monkeypatch.setattr(jax, "process_count", lambda: 2)
        monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(multihost_utils, "reached_preemption_sync_point", service.reached)
        return service

    return make


def test_hosts_end_at_the_step_that_they_agree_on(service: Callable[[int], Service]) -> None:
    """Each step is asked about once, across loops: the service compares for equality."""
    jaxs = service(14)
    trainer = Trainer()
    batches = iter(range(100))
    trainer.train(batches, 10, start_step=0)
    with pytest.raises(PreemptionError, match="ends at step 14"):
        trainer.train(batches, 10, start_step=10)
    assert trainer.train_state.step == 14
    assert jaxs.asked == list(range(15))


@pytest.mark.parametrize("agreed", [1, 2, 1000])
def test_a_notice_from_before_the_training_ends_a_resumed_run_after_one_step(
    service: Callable[[int], Service], agreed: int
) -> None:
    """The notice may come while the hosts restore step 1000, or while some begin; then they agree on an old number."""
    service(agreed)
    trainer = Trainer(1000)
    with pytest.raises(PreemptionError, match="ends at step 1001"):
        trainer.train(iter(range(100)), 10, start_step=1000)
    assert trainer.train_state.step == 1001


def test_a_copy_works_in_another_folder_under_another_name(tmp_path: Path) -> None:
    class OfCopy(load_copy(tmp_path).Preemptible, Base):  # type: ignore[misc]
        """A trainer that derives from the copy."""

    trainer = OfCopy()
    with pytest.raises(PreemptionError, match="ends at step 4"):
        trainer.train(batches_with_signal(3), 10, start_step=0)
    assert trainer.train_state.step == 4


def load_copy(folder: Path) -> Any:
    """Imports a copy of the module under another name."""
    path = shutil.copy(preemption.__file__, folder / "copy_of_it.py")
    spec = importlib.util.spec_from_file_location("copy_of_it", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("value", "joins"), [("1", True), ("true", True), ("0", False), (None, False)])
def test_it_joins_the_hosts_only_where_the_variable_asks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str | None, joins: bool
) -> None:
    joined: list[str] = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda: joined.append("joined"))
    if value is None:
        monkeypatch.delenv("JAX_ENABLE_PREEMPTION_SERVICE", raising=False)
    else:
        monkeypatch.setenv("JAX_ENABLE_PREEMPTION_SERVICE", value)
    load_copy(tmp_path)
    assert joined == ["joined"] * joins


def test_a_machine_that_is_not_a_host_of_several_says_so(monkeypatch: pytest.MonkeyPatch, logged: list[str]) -> None:
    def refuse() -> None:
        raise ValueError("coordinator_address should be defined.")

    monkeypatch.setattr(jax.distributed, "initialize", refuse)
    preemption.join_hosts()
    assert logged == [
        "JAX_ENABLE_PREEMPTION_SERVICE is set, but jax.distributed.initialize() failed: coordinator_address should be "
        "defined."
    ]


@pytest.mark.parametrize(
    ("bindings", "microbatches"),
    [
        ("trainer.Trainer.num_microbatches = 4", 4),
        ("trainer.Trainer.num_microbatches = 4\npreemption.Trainer.num_microbatches = 2", 2),
        ("preemption.Trainer.num_microbatches = 2", 2),
    ],
)
def test_what_gin_binds_to_t5xs_trainer_is_its_default(
    monkeypatch: pytest.MonkeyPatch, bindings: str, microbatches: int
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(t5x.trainer.Trainer, "__init__", lambda self, **kwargs: given.update(kwargs))
    with gin.unlock_config():
        gin.clear_config()
        gin.parse_config(
            "from __gin__ import dynamic_registration\nfrom t5x import trainer\nfrom t5x_harness import preemption\n"
            f"{bindings}\nmacro = @preemption.Trainer()"
        )
    try:
        gin.query_parameter("macro/gin.macro.value").scoped_configurable_fn(model="mine")
    finally:
        gin.clear_config()
    assert given == {"model": "mine", "num_microbatches": microbatches}


def test_the_next_run_goes_on_as_if_there_had_been_no_preemption(programs: Any, tmp_path: Path) -> None:
    """Its learning rate and its microbatches are those of ``trainer.Trainer``, as in the recorded run."""
    case = record("t5_1_1_microbatches")
    (tmp_path / "case.gin").write_text(case["gin"] + PREEMPTED)
    train = ("t5x.train", "--gin_file=case.gin", f'--gin.MODEL_DIR="{tmp_path}/model"')
    with pytest.raises(RunRaised, match="PreemptionError: received SIGTERM: the training ends at step 6\n"):
        programs.run(*train, "--gin.preempted.Trainer.at=5")
    assert sorted(path.name for path in (tmp_path / "model").glob("checkpoint_*")) == ["checkpoint_0", "checkpoint_6"]
    status, printed = programs.run(*train)
    assert status == 0, printed
    observed = programs.call("observe", model_dir="model", final_step=8)
    observed["final_state"]["state/step"]["dtype"] = "int32"  # restored with the dtype of saving, like all
    compared = {"final_state": case["final_state"], "scalars": {"train": case["scalars"]["train"]}}
    again = {"final_state": observed["final_state"], "scalars": {"train": observed["scalars"]["train"]}}
    assert differences({**observed, **compared}, {**observed, **again}, Tolerance()) == []


@dataclasses.dataclass
class Host:
    """A process that trains as one host of a pod, with its output in a file."""

    process: subprocess.Popen[bytes]
    log: Path

    def ended(self) -> tuple[int, str]:
        """Waits until it has ended; returns its exit status and its output."""
        return self.process.wait(timeout=300), self.log.read_text(errors="replace")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Callable[..., list[Host]]]:
    """Trains a recorded run on two hosts with four devices each; the second receives SIGTERM at step 5."""
    case = record("t5_1_1")["gin"] + PREEMPTED + f"MODEL_DIR = '{tmp_path}/model'\nTRAIN_STEPS = 500\n"
    (tmp_path / "case.gin").write_text(case)
    with socket.create_server(("127.0.0.1", 0)) as free:
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "t5x_harness", "exec", "--slice=v4-16", "--t5x-runtime=embedded", "--"]
    # The slice's devices, divided between the hosts: exec itself is for programs that have all of them.
    devices = ["env", "XLA_FLAGS=--xla_force_host_platform_device_count=4", "JAX_NUM_CPU_DEVICES=4"]
    train = [sys.executable, "-m", "t5x.train", "--gin_file=case.gin", "--gin.preempted.Trainer.at=5"]
    modules = {"PYTHONPATH": os.pathsep.join(map(str, (REFERENCE, Path(__file__).parent)))}
    started: list[Host] = []

    def start(**variables: str) -> list[Host]:
        for index in range(2):
            log = tmp_path / f"host{index}.log"
            env = {**os.environ, **Pod(coordinator, 2, index).variables(), **modules, **variables}
            with log.open("wb") as file:
                process = subprocess.Popen(
                    [*command, *devices, *train], stdout=file, stderr=file, cwd=tmp_path, env=env
                )
            started.append(Host(process, log))
        return started

    yield start
    for host in started:
        host.process.kill()
        host.process.wait()


@pytest.mark.journey
def test_the_hosts_of_a_pod_end_at_one_step_after_a_signal_to_one_of_them(
    hosts: Callable[..., list[Host]], tmp_path: Path
) -> None:
    printed = [host.ended()[1] for host in hosts(JAX_ENABLE_PREEMPTION_SERVICE="1")]
    last = [re.findall(r"PreemptionError: .* ends at step (\d+)", text) for text in printed]
    assert last[0] == last[1] != [], printed
    saved = {path.name for path in (tmp_path / "model").glob("checkpoint_*")}
    assert saved == {"checkpoint_0", f"checkpoint_{last[0][0]}"}


@pytest.mark.journey
def test_without_the_variable_a_host_of_a_pod_ends_on_the_signal(hosts: Callable[..., list[Host]]) -> None:
    """The emulated pod joins without JAX's service, as its handler of SIGTERM is not for programs that do not ask."""
    status, printed = hosts()[1].ended()
    assert status in (-signal.SIGTERM, 128 + signal.SIGTERM), printed
    assert "Start the program of every host with JAX_ENABLE_PREEMPTION_SERVICE=1 in its environment." in printed
