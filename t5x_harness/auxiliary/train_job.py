"""The facts in a train job's config that its auxiliary jobs depend on."""

from __future__ import annotations

import dataclasses
import os

from t5x_harness.auxiliary.errors import AuxiliaryError
from t5x_harness.auxiliary.request import AuxiliaryRequest
from t5x_harness.buckets.addresses import object_address
from t5x_harness.gin.program import MAIN, GinProgram
from t5x_harness.gin.reading import program_of, snapshot_of
from t5x_harness.lint.configured import save_config
from t5x_harness.lint.rule import Context
from t5x_harness.vertex.arguments import RunMode, output_folder_of

_TRAIN = f"{MAIN}.train"


@dataclasses.dataclass(frozen=True)
class TrainJob:
    """A train job, as its config describes it.

    Attributes:
      program: the config.
      model_dir: its output folder, an absolute path if it is on this machine.
      last_step: the step of its last checkpoint; None if the config does not say.
      removes: whether it removes checkpoints while it trains.
    """

    program: GinProgram = dataclasses.field(repr=False)
    model_dir: str
    last_step: int | None
    removes: bool

    @property
    def evaluates_by_loss(self) -> bool:
        """Whether it evaluates by teacher forcing while it trains."""
        return _value(self.program, "train_eval_dataset_cfg") is not None


def train_job_of(request: AuxiliaryRequest) -> TrainJob:
    """Reads the train job's config.

    Raises:
      AuxiliaryError: the config is not a train job's, or its folder is not known.
    """
    program = program_of(request.train)
    if not program.complete:
        what = "; ".join(f"{problem.location}: {problem.subject or problem.detail}" for problem in program.problems)
        raise AuxiliaryError(f"the train job's config cannot be read: {what}. t5x-harness lint says more")
    if _TRAIN not in {binding.target for binding in program.entries}:
        files = ", ".join(request.train.gin_files)
        raise AuxiliaryError(
            f"{files}: binds no parameter of train, so it is not a train job's config; name the train job's file"
        )
    model_dir = request.model_dir or output_folder_of(program, RunMode.TRAIN).value
    if not model_dir:
        raise AuxiliaryError("MODEL_DIR of the train job is open: give --model_dir, the folder that it writes into")
    last = request.last_step or _last_step(program)
    save = save_config(Context(program, snapshot_of(program)))
    return TrainJob(
        program,
        model_dir.rstrip("/")
        if object_address(model_dir)
        else os.path.abspath(os.path.join(request.train.cwd, model_dir)),
        last,
        removes=save is None or save.value("keep") is not None,
    )


def _last_step(program: GinProgram) -> int | None:
    total = _value(program, "total_steps")
    return total if isinstance(total, int) and _value(program, "relative_steps") is None else None


def _value(program: GinProgram, parameter: str) -> object:
    binding = program.lookup(_TRAIN, parameter)
    return program.resolve(binding).value if binding is not None else None
