"""The job for one checkpoint and one mixture: its config with the macros replaced."""

from __future__ import annotations

import dataclasses

from t5x_harness.auxiliary.request import AuxiliaryRequest, plain
from t5x_harness.gin.program import GinProgram
from t5x_harness.gin.reading import program_of
from t5x_harness.lint.auxiliary_macros import CHECKPOINT_MACROS
from t5x_harness.spec import Mode, RunSpec
from t5x_harness.vertex.arguments import RunMode, argument_of, normalized, output_macro_of

FOLDER = "auxiliary"
"""The folder in the train job's folder that belongs to auxiliary jobs."""


@dataclasses.dataclass(frozen=True)
class AuxiliaryJob:
    """An evaluation or a fine-tuning of one checkpoint.

    Attributes:
      step: the step of its checkpoint.
      mixture: the mixture to evaluate, or to fine-tune on.
      spec: its gin files, and bindings that replace the macros.
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
    """What the jobs of a request have in common.

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
        """Makes the job for a mixture and the checkpoint at this address."""
        folder = self.model_dir
        if not self.shares_folder:
            folder = f"{folder}/{FOLDER}/{self.request.name}/{plain(mixture)}/checkpoint_{step}"
        macros = self._macros(checkpoint, step, mixture, folder)
        # Macros that the config does not have are left out, so that the job's config shows only what has an effect.
        has = {*self.program.macros, *self.program.read_macros} if self.mode is not None else {*macros}
        replaced = (f"{name} = {value!r}" for name, value in macros.items() if name in has)
        bindings = (*self.request.all_bindings, *replaced)
        return AuxiliaryJob(step, mixture, dataclasses.replace(self._spec, bindings=bindings), folder, self.mode)

    @property
    def shares_folder(self) -> bool:
        """Whether jobs write into the train job's folder, so that TensorBoard shows all metrics together."""
        return self.request.final_steps == 0 and self.mode is not RunMode.INFER

    @property
    def _spec(self) -> RunSpec:
        return self.program.spec

    def _macros(self, checkpoint: str, step: int, mixture: str, folder: str) -> dict[str, str | int]:
        checkpoints = [macro for macro in CHECKPOINT_MACROS if macro in self.program.read_macros]
        outputs = (
            [output_macro_of(self.mode or RunMode.EVAL)] if self.shares_folder or self.mode is RunMode.INFER else []
        )
        return {
            "MODEL_DIR": folder,
            **dict.fromkeys(outputs, folder),
            "MIXTURE_OR_TASK_NAME": mixture,
            **dict.fromkeys(checkpoints or CHECKPOINT_MACROS[:1], checkpoint),
            "TRAIN_STEPS": step + self.request.final_steps,
        }


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
    mode = request.mode_of_module
    if mode is None and request.is_of_t5x:
        # If both configs are read, the jobs' own config decides.
        own = program_of(dataclasses.replace(spec, gin_files=request.gin_files, bindings=()))
        meant = own.mode or program.mode
        mode = RunMode(meant.value) if meant is not None else None
    spec = dataclasses.replace(spec, mode=Mode(mode.value) if mode is not None else None)
    return JobTemplate(request, model_dir, dataclasses.replace(program, spec=spec), mode)
