"""A request for auxiliary jobs: the train job, and the jobs to start for each of its checkpoints."""

from __future__ import annotations

import dataclasses
import re

from t5x_harness.spec import DEFAULT_SLICE, RunSpec
from t5x_harness.vertex.arguments import RunMode
from t5x_harness.vertex.machine import Machine


class AuxiliaryError(Exception):
    """The controller cannot start or continue; the message explains why and what to do."""


_MODES = {f"t5x.{mode}": mode for mode in (RunMode.TRAIN, RunMode.EVAL, RunMode.INFER)}
MAIN = "t5x.main"
"""The module with all of T5X's functions, which jobs run by default."""


@dataclasses.dataclass(frozen=True)
class AuxiliaryRequest:
    """The jobs that are started for each checkpoint of a train job, one for each mixture.

    Attributes:
      train: the train job: its gin files and bindings, search paths and folders for modules.
      mixtures: the tasks or mixtures, each of which has its own job.
      gin_files: the jobs' gin files, which follow the train job's.
      replace_gin_file: whether to leave out the train job's gin files.
      final_steps: the train steps of a job after its checkpoint's step; 0 to evaluate.
      platform: the jobs' TPU slice, or a machine that :meth:`~t5x_harness.vertex.machine.Machine.parse` reads.
      module: the module that the jobs run, such as ``t5x.main`` or one of your own.
      bindings: the jobs' bindings, which follow their gin files.
      model_dir: the train job's folder; None for the folder that its config names.
      name: a name that distinguishes several requests for one train job; by default the name of the last gin file.
      at_once: the maximum number of jobs that run at the same time.
      skip_to_newest: whether to skip all but the newest checkpoint if several are waiting.
      last_step: the train job's last step; None for the step that its config names.
      low_priority: whether to run at a low priority: niced on this machine, or on Spot machines on Vertex AI.
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
        # In the notation of T5X's guide, //t5x:eval is the module t5x.eval.
        module = self.module.removeprefix("//").replace("/", ".").replace(":", ".")
        object.__setattr__(self, "module", module)
        last = (*self.train.gin_files, *self.gin_files)[-1] if self.train.gin_files or self.gin_files else "jobs"
        object.__setattr__(self, "name", plain(self.name or last.rpartition("/")[2].removesuffix(".gin")))

    @property
    def slice(self) -> str:
        """The name of the slice, even if the platform is in Vertex AI's notation."""
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
        """The bindings of the jobs, preceded by the train job's if its files are used."""
        return self.bindings if self.replace_gin_file else (*self.train.bindings, *self.bindings)

    @property
    def mode_of_module(self) -> RunMode | None:
        """The only mode of the module; None for ``t5x.main``, which has all modes, and for modules outside T5X."""
        return _MODES.get(self.module)

    @property
    def is_of_t5x(self) -> bool:
        """Whether the module is part of T5X, so that its use of the config is known."""
        return self.module == MAIN or self.module in _MODES


def plain(name: str) -> str:
    """Makes a name that is valid for a folder, a job and a label."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "jobs"
