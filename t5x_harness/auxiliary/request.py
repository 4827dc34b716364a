"""What is asked for: which jobs are started for each checkpoint of which train job."""

from __future__ import annotations

import dataclasses
import re

from t5x_harness.spec import DEFAULT_SLICE, RunSpec
from t5x_harness.vertex.machine import Machine
from t5x_harness.vertex.run_mode import RunMode

_MODES = {f"t5x.{mode}": mode for mode in (RunMode.TRAIN, RunMode.EVAL, RunMode.INFER)}
MAIN = "t5x.main"
"""The module that has all of T5X's functions, which jobs run unless another one is asked for."""


@dataclasses.dataclass(frozen=True)
class AuxiliaryRequest:
    """The jobs that are started for each checkpoint of a train job, one for each mixture.

    Attributes:
      train: the train job: its gin files and bindings, search paths and folders for modules.
      mixtures: the tasks or mixtures, each of which has a job of its own.
      gin_files: of the jobs, after those of the train job.
      replace_gin_file: leave the train job's gin files out.
      final_steps: train steps of a job, beyond those of its checkpoint; 0 to evaluate.
      platform: the jobs' TPU slice, also as :meth:`~t5x_harness.vertex.machine.Machine.parse` reads machines.
      module: what the jobs run, such as ``t5x.main`` or one of your own.
      bindings: of the jobs, after their gin files.
      model_dir: the train job's folder; None for that which its config names.
      name: tells the jobs of several requests for one train job apart; by default that of the last gin file.
      at_once: the most jobs that run at a time.
      skip_to_newest: where several checkpoints wait, pass over all but the newest.
      last_step: of the train job; None for that which its config names.
      low_priority: let others go first: here by nice, on Vertex AI on Spot machines.
    """

    train: RunSpec
    mixtures: tuple[str, ...] = ()
    gin_files: tuple[str, ...] = ()
    replace_gin_file: bool = False
    final_steps: int = 0
    platform: str = DEFAULT_SLICE
    module: str = MAIN
    bindings: tuple[str, ...] = ()
    model_dir: str | None = None
    name: str = ""
    at_once: int = 1
    skip_to_newest: bool = False
    last_step: int | None = None
    low_priority: bool = False

    def __post_init__(self) -> None:
        # As T5X's guide writes it: //t5x:eval is the module t5x.eval.
        module = self.module.removeprefix("//").replace("/", ".").replace(":", ".")
        object.__setattr__(self, "module", module)
        last = (*self.train.gin_files, *self.gin_files)[-1] if self.train.gin_files or self.gin_files else "jobs"
        object.__setattr__(self, "name", plain(self.name or last.rpartition("/")[2].removesuffix(".gin")))

    @property
    def slice(self) -> str:
        """The slice by its name, where the platform says how Vertex AI spells it."""
        if "=" in self.platform or self.platform.upper().startswith("TPU_"):
            found = Machine.parse(self.platform).slice
            return found.name if found is not None else self.platform
        return self.platform

    @property
    def files(self) -> tuple[str, ...]:
        """The gin files of the jobs, in order."""
        return self.gin_files if self.replace_gin_file else (*self.train.gin_files, *self.gin_files)

    @property
    def all_bindings(self) -> tuple[str, ...]:
        """The bindings of the jobs: those of the train job go with its files."""
        return self.bindings if self.replace_gin_file else (*self.train.bindings, *self.bindings)

    @property
    def mode_of_module(self) -> RunMode | None:
        """The mode that the module has; None for ``t5x.main``, which has all, and for one that is not T5X's."""
        return _MODES.get(self.module)

    @property
    def is_of_t5x(self) -> bool:
        """Whether the module is T5X's, so that it is known what it does with its config."""
        return self.module == MAIN or self.module in _MODES


def plain(name: str) -> str:
    """Returns a name that a folder, a job and a label can have."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "jobs"
