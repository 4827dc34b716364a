"""Repeats a run's training in processes of their own, which a fault may end."""

import collections
import dataclasses
import shutil
from pathlib import Path
from typing import Any, Protocol

from t5x_harness.buckets.checkpoints import finished_checkpoints
from t5x_harness.buckets.folders import LocalFolder
from t5x_harness.resume.history import History
from t5x_harness.resume.life import Life, TrainingEnd, WaitingLife
from t5x_harness.slices.slice import get_slice
from t5x_harness.spec import Fault, Hosts, Mode, RunSpec, Stage
from t5x_harness.system.closing import Closing
from t5x_harness.system.decode import JsonValue
from t5x_harness.workers.run import RunProcess

FACTORY = "t5x_harness.resume.training:Training"
_OF_RESULTS = "t5x_harness.resume.inference:Inference"


@dataclasses.dataclass(frozen=True)
class Repeatable(JsonValue):
    """What the run's own process does, and others can do again: a training, an evaluation or an inference.

    Attributes:
      mode: which of the three it is.
      bindings: gin statements for the sizes that it ran at, and for what it started from.
      output: the name of the binding of the folder that it writes into.
      address: that folder, as passed to T5X.
      local: the same folder on this machine's disk.
      is_in_bucket: whether it is in a bucket of the emulated Google Cloud.
      standins: the folder of the stand-ins that it read.
      embedding_rows: the number of rows of the model's embedding that they fit; None if it is not known.
      data_axis: the size of the mesh's data axis; None for that of the whole slice.
      examples: the number of examples of each task that evaluations and inferences read; None for all.
      first_step: the step that it started from; 0 for an evaluation or an inference.
      last_step: the step that it ends at; the number of chunks of each task of an inference.
      checkpoint: the checkpoint that is inferred with, if a train config wrote it; else empty.
      saves: the steps after the first one at which it saves, ascending.
      evals: the steps after the first one at which it is evaluated, ascending.
      record: the file that it was recorded in.
      saves_dataset: whether its checkpoints have the position of the input pipeline.
      save_dtype: the dtype that it saves parameters with; empty for their own.
      hardware_rng: whether dropout uses the hardware's generator.
    """

    mode: Mode
    bindings: tuple[str, ...]
    output: str
    address: str
    local: str
    is_in_bucket: bool
    standins: str
    embedding_rows: int | None
    data_axis: int | None
    examples: int | None
    first_step: int
    last_step: int
    saves: tuple[int, ...] = ()
    evals: tuple[int, ...] = ()
    record: str = ""
    saves_dataset: bool = False
    save_dtype: str = ""
    hardware_rng: bool = False
    checkpoint: str = ""


class Start(Protocol):
    """Starts a process of a run."""

    def __call__(self, factory: str, folder: Path, spec: RunSpec, **argument: Any) -> RunProcess:
        """Starts it with a folder for its log, and further arguments for the factory."""


class Repeater(Closing):
    """Repeats a training in one process after another.

    Args:
      spec: the run.
      training: its training.
      start: starts a process.
      workspace: the run's folder.
      timeout: the seconds that one training may take; None for no limit.

    Attributes:
      spec: the argument, as is ``training``.
    """

    def __init__(
        self, spec: RunSpec, training: Repeatable, start: Start, workspace: Path, timeout: float | None
    ) -> None:
        self.training = training
        self.spec = spec
        self._start = start
        self._workspace = workspace
        self._timeout = timeout
        self._begun = collections.Counter[str]()
        self._lives: list[Life] = []
        self._next: WaitingLife | None = None
        self._closed = False

    def close(self) -> None:
        """Ends the processes at work; none is started any more. May be called again."""
        self._closed = True
        for life in list(self._lives):
            life.close()

    def train(
        self, name: str, fault: Fault | None = None, at_step: int = 0, on: str | None = None, *, again: bool = False
    ) -> TrainingEnd:
        """Trains in a folder, from the newest checkpoint in it.

        Args:
          name: the name of the training; each has a folder.
          fault: the fault that ends it; None for none.
          at_step: the first step at which the fault's moment counts.
          on: another slice, or number of partitions; None for the run's own.
          again: whether the call that follows the fault goes on with this training, as it is. Its process may then
            start beside this one, and waits for that call before it looks for a checkpoint.

        Raises:
          WorkerError: the process ended without a fault.
        """
        if self._next is not None:
            waiting, self._next = self._next, None
            return waiting.train()
        again = again and self.spec.settings.hosts is Hosts.ONE

        def start_next() -> None:
            if again and self._next is None:
                permit = self._folder / f"{name}-permit-{self._begun[name] + 1}"
                self._next = WaitingLife(self._life(name), permit)

        came = False
        try:
            with self._life(name, fault, at_step, on) as life:
                end = life.train(start_next)
            came = bool(end.moment) and end.finding is None
            return end
        finally:
            if not came:
                self._drop_next()

    def _drop_next(self) -> None:
        """Ends the process that waits, if there is one."""
        if self._next is not None:
            self._next.close()
            self._next = None

    def _life(self, name: str, fault: Fault | None = None, at_step: int = 0, on: str | None = None) -> Life:
        """Starts a process of a training."""
        self._begun[name] += 1
        spec, training = self.spec, self.training
        bindings = (*spec.bindings, *training.bindings, f"{training.output} = {self.address(name)!r}")
        if on is not None:
            training = dataclasses.replace(training, data_axis=None)
            if on.isdecimal():
                bindings = (*bindings, f"partitioning.PjitPartitioner.num_partitions = {on}")
            else:
                spec = dataclasses.replace(spec, slice=on)
        hosts = spec.settings.hosts if get_slice(spec.slice).hosts > 1 else Hosts.ONE
        spec = spec.with_settings(
            full_size=True, resume=False, preempt=None, campaign=None, model_dir=None, hosts=hosts
        )
        spec = dataclasses.replace(spec, bindings=bindings)
        factory = FACTORY if self.training.mode is Mode.TRAIN else _OF_RESULTS
        process = self._start(factory, self._folder / f"{name}-run", spec, training=training.to_json())
        arguments = {
            "record": str(self.record(name)),
            "life": self._begun[name],
            "local": str(self.local(name)),
            "at_step": at_step,
        }
        life = Life(process, arguments, self._timeout, fault)
        self._lives.append(life)
        if self._closed:
            life.close()
        return life

    @property
    def _folder(self) -> Path:
        return self._workspace / Stage.RESUME.value

    def address(self, name: str) -> str:
        """Returns the folder that a training writes into, as passed to T5X; it is of the same kind as the run's own."""
        return f"{self.training.address}-{name}" if self.training.is_in_bucket else str(self.local(name))

    def local(self, name: str) -> Path:
        """Returns the same folder on this machine's disk."""
        if self.training.is_in_bucket:
            return Path(f"{self.training.local}-{name}")
        return self._folder / name

    def record(self, name: str) -> Path:
        """Returns the file that a training is recorded in."""
        return self._folder / f"{name}.jsonl"

    def history(self, name: str) -> History:
        """Returns what a training recorded."""
        return History.read(self.record(name))

    def remove(self, name: str) -> None:
        """Removes a training's folders."""
        for folder in (self.local(name), self._folder / f"{name}-run"):
            shutil.rmtree(folder, ignore_errors=True)

    def unfinished(self, name: str) -> list[str]:
        """Returns the names of the checkpoints in a training's folder that were not written to their end."""
        names = {path.name for path in self.local(name).glob("checkpoint_*")}
        return sorted(names - {f"checkpoint_{step}" for step in self.saved(name)})

    def saved(self, name: str) -> list[int]:
        """Returns the steps of the complete checkpoints in a training's folder, ascending."""
        return complete_checkpoints(self.training, self.local(name))


def complete_checkpoints(training: Repeatable, folder: Path) -> list[int]:
    """Returns the steps of the checkpoints that were written to their end, ascending, in a folder of a training."""
    place, in_bucket = LocalFolder(folder), training.is_in_bucket
    return [found.step for found in finished_checkpoints(place, training.address, in_bucket=in_bucket)]
