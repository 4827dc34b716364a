"""A request for auxiliary jobs: its train job, the job for each checkpoint and mixture, and the backends for jobs."""

import dataclasses
import os
import re
from typing import Protocol

from t5x_harness.buckets.addresses import object_address
from t5x_harness.gin.program import MAIN, GinProgram
from t5x_harness.gin.reading import program_of, snapshot_of
from t5x_harness.lint.rule import CHECKPOINT_MACROS, ConfiguredObject, Context, save_config
from t5x_harness.spec import DEFAULT_SLICE, Mode, RunSpec
from t5x_harness.vertex.arguments import RunMode, argument_of, normalized, output_folder_of, output_macro_of
from t5x_harness.vertex.machine import Machine

FOLDER = "auxiliary"
"""The folder in the train job's folder that belongs to auxiliary jobs."""


class AuxiliaryError(Exception):
    """The controller cannot start or continue; the message explains why and what to do."""


_MODES = {f"t5x.{mode}": mode for mode in (RunMode.TRAIN, RunMode.EVAL, RunMode.INFER)}
"""The modules that have only one mode."""

T5X_MAIN = "t5x.main"
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
    module: str = T5X_MAIN
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
    def is_of_t5x(self) -> bool:
        """Whether the module is part of T5X, so that its use of the config is known."""
        return self.module == T5X_MAIN or self.module in _MODES


def plain(name: str) -> str:
    """Makes a name that is valid for a folder, a job and a label."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "jobs"


@dataclasses.dataclass(frozen=True)
class TrainJob:
    """A train job, as its config describes it.

    Attributes:
      model_dir: its output folder, as an absolute path if it is on this machine.
      last_step: the step of its last checkpoint; None if the config does not name it.
      removes: whether it removes checkpoints while it trains.
      evaluates_by_loss: whether it evaluates by teacher forcing while it trains.
    """

    model_dir: str
    last_step: int | None
    removes: bool
    evaluates_by_loss: bool


def train_job_of(request: AuxiliaryRequest) -> TrainJob:
    """Reads the train job's config.

    Raises:
      AuxiliaryError: the config is not a train job's, or its folder is not known.
    """
    program = program_of(request.train)
    if not program.complete:
        what = "; ".join(f"{problem.location}: {problem.subject or problem.detail}" for problem in program.problems)
        raise AuxiliaryError(f"the train job's config cannot be read: {what}. t5x-harness lint says more")
    context = Context(program, snapshot_of(program))
    train = ConfiguredObject(context, f"{MAIN}.train")
    if train.target not in {binding.target for binding in program.entries}:
        files = ", ".join(request.train.gin_files)
        raise AuxiliaryError(
            f"{files}: binds no parameter of train, so it is not a train job's config; name the train job's file"
        )
    model_dir = request.model_dir or output_folder_of(program, RunMode.TRAIN).value
    if not model_dir:
        raise AuxiliaryError("MODEL_DIR of the train job is open: give --model_dir, the folder that it writes into")
    if not object_address(model_dir):
        model_dir = os.path.abspath(os.path.join(request.train.cwd, model_dir))
    total, save = train.value("total_steps"), save_config(context)
    is_known = isinstance(total, int) and train.value("relative_steps") is None
    return TrainJob(
        model_dir.rstrip("/"),
        request.last_step or (total if is_known else None),
        removes=save.value("keep") is not None,
        evaluates_by_loss=train.value("train_eval_dataset_cfg") is not None,
    )


@dataclasses.dataclass(frozen=True)
class AuxiliaryJob:
    """An evaluation or a fine-tuning of one checkpoint.

    Attributes:
      step: the step of its checkpoint.
      mixture: the mixture to evaluate, or to fine-tune on.
      spec: its gin files, and the bindings that replace the macros.
      folder: its output folder.
      mode: T5X's mode; None for a module that is not part of T5X.
    """

    step: int
    mixture: str
    spec: RunSpec
    folder: str
    mode: RunMode | None

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of its program, in the form that T5X's programs take."""
        spec = self.spec
        return (
            *(f"--gin_file={file}" for file in spec.gin_files),
            *(argument_of(binding) for binding in spec.bindings),
            *([f"--gin_search_paths={','.join(spec.search_paths)}"] if spec.search_paths else ()),
            *([f"--tfds_data_dir={spec.settings.tfds_data_dir}"] if spec.settings.tfds_data_dir else ()),
        )


@dataclasses.dataclass(frozen=True)
class JobTemplate:
    """The parts that the jobs of a request have in common.

    Attributes:
      request: the request.
      model_dir: the train job's folder.
      program: the jobs' config before macros are replaced.
      mode: T5X's mode; None for a module that is not part of T5X.
    """

    request: AuxiliaryRequest
    model_dir: str
    program: GinProgram = dataclasses.field(repr=False)
    mode: RunMode | None

    def job(self, checkpoint: str, step: int, mixture: str) -> AuxiliaryJob:
        """Makes the job for a mixture and the checkpoint at an address."""
        folder = self.model_dir
        if not self.shares_folder:
            folder = f"{folder}/{FOLDER}/{self.request.name}/{plain(mixture)}/checkpoint_{step}"
        macros: dict[str, str | int] = {"MODEL_DIR": folder}
        if self.shares_folder or self.mode is RunMode.INFER:
            macros[output_macro_of(self.mode or RunMode.EVAL)] = folder
        macros["MIXTURE_OR_TASK_NAME"] = mixture
        checkpoints = [macro for macro in CHECKPOINT_MACROS if macro in self.program.read_macros]
        macros |= dict.fromkeys(checkpoints or CHECKPOINT_MACROS[:1], checkpoint)
        macros["TRAIN_STEPS"] = step + self.request.final_steps
        # Macros that the config does not have are left out, so that the job's config shows only effective ones.
        has = {*self.program.macros, *self.program.read_macros} if self.mode is not None else {*macros}
        replaced = (f"{name} = {value!r}" for name, value in macros.items() if name in has)
        spec = dataclasses.replace(self.program.spec, bindings=(*self.request.all_bindings, *replaced))
        return AuxiliaryJob(step, mixture, spec, folder, self.mode)

    @property
    def shares_folder(self) -> bool:
        """Whether jobs write into the train job's folder, so that TensorBoard shows all metrics together."""
        return self.request.final_steps == 0 and self.mode is not RunMode.INFER


def template_of(request: AuxiliaryRequest, model_dir: str) -> JobTemplate:
    """Reads the jobs' config.

    Raises:
      OverrideError: Gin cannot read a binding.
    """
    bindings = normalized(request.all_bindings)
    spec = dataclasses.replace(
        request.train.with_settings(plan_golden=None, plan_golden_update=False),
        gin_files=request.files,
        bindings=bindings,
        slice=request.slice,
        mode=None,
    )
    program = program_of(spec)
    mode = _MODES.get(request.module)
    if mode is None and request.is_of_t5x:
        # If both configs are read, the jobs' own config decides.
        own = program_of(dataclasses.replace(spec, gin_files=request.gin_files, bindings=()))
        meant = own.mode or program.mode
        mode = RunMode(meant.value) if meant is not None else None
    spec = dataclasses.replace(spec, mode=Mode(mode.value) if mode is not None else None)
    return JobTemplate(request, model_dir, dataclasses.replace(program, spec=spec), mode)


@dataclasses.dataclass(frozen=True)
class JobStatus:
    """The status of a job.

    Attributes:
      running: whether the job has not ended.
      succeeded: whether it did all of its work.
      killed: whether it was ended from outside and has no result, so it has to be started again.
      message: why the job did not succeed.
    """

    running: bool = False
    succeeded: bool = False
    killed: bool = False
    message: str = ""


class PassingError(Exception):
    """A backend cannot do something now, but may be able to soon."""


class JobBackend(Protocol):
    """Starts jobs, which continue without their controller, and finds them again."""

    def start(self, name: str, job: AuxiliaryJob) -> str:
        """Starts a job under a unique name, and returns where it runs.

        Raises:
          AuxiliaryError: the job cannot be started.
          PassingError: the job cannot be started now.
        """

    def find(self, name: str) -> str | None:
        """Returns where the job with a name runs or has run; None if there is no such job.

        Raises:
          PassingError: this cannot be determined now.
        """

    def status(self, where: str) -> JobStatus:
        """Looks up the status of a job.

        Raises:
          AuxiliaryError: the job cannot be observed from here.
          PassingError: the job cannot be observed now.
        """
