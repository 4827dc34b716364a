"""A run of T5X as a Vertex AI CustomJob: the staged files, the container's arguments, and the machine."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from t5x_harness.buckets.addresses import GS, bucket_of, mounted, object_address
from t5x_harness.buckets.folders import StagedFile
from t5x_harness.spec import Mode, RunSettings, RunSpec
from t5x_harness.system.field_types import fault_in
from t5x_harness.version import __version__
from t5x_harness.vertex.arguments import OutputBinding, RunMode, argument_of, normalized, output_folder_of
from t5x_harness.vertex.closure import Closure, closure_of
from t5x_harness.vertex.container import FOUR_HOURS, ContainerJob, JobOptions
from t5x_harness.vertex.machine import ChipHours, Machine
from t5x_harness.vertex.target import VertexTarget

if TYPE_CHECKING:
    from google.cloud.aiplatform_v1 import types

VERSION_LABEL = "t5x_harness_version"
SPEC_LABEL = "t5x_harness_spec"
"""The label with a hash of a job's work: jobs with the same value do the same work."""

_STAGED = "t5x-harness/staged"
_RUNS = "t5x-harness/runs"
_CHECKPOINT = "CHECKPOINT_PATH"


def unique_stamp() -> str:
    """Returns the time in UTC, followed by random digits that distinguish runs started in the same second."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


class JobError(ValueError):
    """A run cannot become a job; the message says what disagrees and how to fix it."""


@dataclasses.dataclass(frozen=True)
class T5XJob:
    """A run of T5X on Vertex AI.

    Nothing is read, staged or sent until it is needed; :meth:`from_gin` is the usual way to make a job.

    Attributes:
      run: the gin files, bindings and folders; its slice and model_dir are not used.
      target: where the job goes.
      machine: the machine that it runs on.
      run_mode: the run mode of T5X's main.
      timeout: the seconds after which Vertex AI ends the job.
      name: the name of the run, made of letters, digits and ``-``. It is part of the job's name, of the folder of its
        results, and of the experiment.
      stamp: the text that distinguishes runs with the same name, which would otherwise resume from each other's
        checkpoints; see :func:`unique_stamp`.
      env: further environment variables of the container.
      labels: further labels of the job.
      options: further fields of the job's spec.
    """

    run: RunSpec
    target: VertexTarget
    machine: Machine
    run_mode: RunMode
    timeout: int = FOUR_HOURS
    name: str = ""
    stamp: str = dataclasses.field(default_factory=unique_stamp)
    env: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    options: JobOptions = dataclasses.field(default_factory=JobOptions)

    def __post_init__(self) -> None:
        if not self.run.gin_files:
            raise JobError("a T5X job needs a gin file")
        if type(self.timeout) is not int or self.timeout < 1:  # without one, it is a week
            raise JobError(f"timeout {self.timeout!r}: give whole seconds above zero, such as 4 * 3600")
        if fault := fault_in(self, ("env", "labels")):
            raise JobError(fault)
        object.__setattr__(self, "name", plain_name(self.name or self.run.name))
        object.__setattr__(self, "run", dataclasses.replace(self.run, bindings=normalized(self.run.bindings)))

    @classmethod
    def from_gin(
        cls,
        *gin_files: str | os.PathLike[str],
        run_mode: str,
        machine: str | Machine,
        target: VertexTarget,
        bindings: Sequence[str] = (),
        search_paths: Sequence[str | os.PathLike[str]] = (),
        python_path: Sequence[str | os.PathLike[str]] = (),
        tfds_data_dir: str | None = None,
        timeout: int = FOUR_HOURS,
        name: str = "",
        cwd: str | os.PathLike[str] = ".",
    ) -> Self:
        """Makes a job from gin files.

        Args:
          *gin_files: the paths, in the order in which T5X reads them.
          run_mode: ``train``, ``eval``, ``infer`` or ``precompile``.
          machine: the machine, in a form that :meth:`Machine.parse` reads: ``v3-32``, ``TPU_V3:32``,
            ``machine-type=…,tpu-topology=…``.
          target: where the job goes; see :func:`~t5x_harness.vertex.target.find_target`.
          bindings: gin statements that are read after the files: ``TRAIN_STEPS = 1000``.
          search_paths: folders in which gin files and includes are looked up.
          python_path: folders with the modules that the gin files import.
          tfds_data_dir: ``gs://…``; None leaves the flag out.
          timeout: the seconds after which Vertex AI ends the job.
          name: the name of the run; by default the name of the last gin file.
          cwd: the folder that relative paths start from.

        Raises:
          RunModeError: T5X has no such mode.
          MachineError: there is no such machine.
          OverrideError: Gin cannot read a binding.
          JobError: no gin file is given, or the timeout is not a number of seconds.
        """
        mode = RunMode.parse(run_mode)
        spec = RunSpec(
            gin_files=tuple(os.fspath(path) for path in gin_files),
            bindings=normalized(bindings),
            search_paths=tuple(os.fspath(path) for path in search_paths),
            python_path=tuple(os.fspath(path) for path in python_path),
            mode=Mode(mode.value) if mode is not RunMode.PRECOMPILE else None,
            cwd=os.fspath(cwd),
            settings=RunSettings(tfds_data_dir=tfds_data_dir),
        )
        chosen = machine if isinstance(machine, Machine) else Machine.parse(machine)
        return cls(spec, target, chosen, mode, timeout, name)

    @cached_property
    def closure(self) -> Closure:
        """The files on this machine that the job needs, read on first access.

        Raises:
          ClosureError: a file is missing or is not part of the project.
        """
        return closure_of(self.run)

    @property
    def stage(self) -> str:
        """The ``gs://…`` folder of the staged files, whose name is a hash of their content."""
        return f"{GS}{self.target.bucket}/{_STAGED}/{self.closure.digest}"

    @property
    def staged_files(self) -> tuple[StagedFile, ...]:
        """All files that are staged in the bucket."""
        return self.closure.files(self._mounted_stage)

    @property
    def output(self) -> str:
        """The ``gs://…`` folder of this run."""
        return f"{GS}{self.target.bucket}/{_RUNS}/{self.name}/{self.stamp}"

    @property
    def model_dir(self) -> str:
        """The ``gs://…`` folder that T5X writes into: the config's folder for the run mode, or this run's own.

        Raises:
          JobError: the config's folder is not in a bucket.
        """
        name, folder, own = self._output_folder.name, self._output_folder.value, f"{self.output}/model"
        if folder is None:
            return own
        address = object_address(folder)
        if address is None:
            raise JobError(
                f"{name} = {folder!r}: that is a folder of the job's container, and is gone when the job ends. Bind "
                f"{name} to a gs:// folder, or leave it out: then it is {own}"
            )
        if not bucket_of(folder):
            raise JobError(
                f"{name} = {folder!r}: that names no bucket. Bind {name} to a folder of one, as gs://BUCKET/FOLDER, or "
                f"leave it out: then it is {own}"
            )
        return address.rstrip("/")

    @property
    def args(self) -> tuple[str, ...]:
        """The arguments of T5X's main.

        Raises:
          ClosureError: a file is missing or is not part of the project.
          JobError: the folder for results or the data is not in a bucket, or no checkpoint is named.
        """
        program = self.closure.program
        if program.complete and any(macro.name == _CHECKPOINT for macro in program.required_macros):
            # Lint does not require it, because the launcher of a run binds it.
            raise JobError(
                f"{_CHECKPOINT} has no value, and T5X would stop at that: bind it to the gs:// folder of a checkpoint: "
                f"{_CHECKPOINT} = 'gs://BUCKET/FOLDER/checkpoint_1000'"
            )
        root = self._mounted_stage
        paths = self.closure.search_paths
        # The folder is always bound, in the form that T5X's writers need, so that the job's spec shows it.
        macros = self._output_folder.macros
        given = (text for text in self.closure.bindings(root) if text.partition(" = ")[0] not in macros)
        bindings = (*(f'{macro} = "{self.model_dir}"' for macro in macros), *given)
        return (
            f"--run_mode={self.run_mode}",
            *(f"--gin_file={path.under(root)}" for path in self.closure.gin_files),
            *(argument_of(binding) for binding in bindings),
            *([f"--gin_search_paths={','.join(paths)}"] if paths else ()),
            *([f"--tfds_data_dir={self._data_dir}"] if self.run.settings.tfds_data_dir else ()),
        )

    @property
    def container(self) -> ContainerJob:
        """The container job that :meth:`to_pb` puts into the message.

        Raises:
          ClosureError: a file is missing or is not part of the project.
          JobError: the folder for results or the data is not in a bucket, or no checkpoint is named.
        """
        return ContainerJob(
            name=f"{self.name}-{self.stamp}",
            target=self.target,
            machine=self.machine,
            args=self.args,
            env=self._env,
            timeout=self.timeout,
            output=self.output,
            labels={**self.labels, **labels_of(self.digest)},
            options=self.options,
        )

    def to_pb(self) -> types.CustomJob:
        """Returns the message that CreateCustomJob takes.

        Raises:
          ClosureError: a file is missing or is not part of the project.
          JobError: the folder for results or the data is not in a bucket, or no checkpoint is named.
          MachineError: there is no accelerator with this name.
        """
        return self.container.to_pb()

    @property
    def chip_hours(self) -> ChipHours:
        """The maximum chip-hours that the job can use."""
        return ChipHours.of(self.machine, self.timeout)

    @cached_property
    def digest(self) -> str:
        """A hash of the job's work, as 32 hexadecimal digits: jobs that do the same work always have the same hash."""
        own = self.output
        does = [
            self.target.image,
            dataclasses.asdict(self.machine),
            [argument.replace(own, "") for argument in self.args],
            dict(self._env),
        ]
        return digest_of(does)

    @property
    def _mounted_stage(self) -> str:
        return mounted(self.stage) or ""

    @property
    def _env(self) -> Mapping[str, str]:
        if not self.closure.modules:
            return self.env
        folders = (f"{self._mounted_stage}/python", self.target.image_python_path, self.env.get("PYTHONPATH"))
        return {**self.env, "PYTHONPATH": ":".join(folder for folder in folders if folder)}

    @cached_property
    def _output_folder(self) -> OutputBinding:
        return output_folder_of(self.closure.program, self.run_mode)

    @property
    def _data_dir(self) -> str:
        folder = self.run.settings.tfds_data_dir or ""
        address = object_address(folder)
        if address is None:
            raise JobError(f"--tfds_data_dir {folder}: the job does not have this folder; copy it to a gs:// folder")
        if not bucket_of(folder):
            raise JobError(
                f"--tfds_data_dir {folder}: that names no bucket; give a folder of one, as gs://BUCKET/FOLDER"
            )
        return address


def plain_name(name: str, otherwise: str = "run") -> str:
    """Returns a name that is valid for a folder, a job, an experiment's run and a label."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63] or otherwise


def digest_of(does: Sequence[Any]) -> str:
    """Returns a hash of a job's work, as 32 hexadecimal digits."""
    return hashlib.sha256(json.dumps(does, sort_keys=True).encode()).hexdigest()[:32]


def labels_of(digest: str) -> dict[str, str]:
    """Returns the labels that every job has: its digest, and the version of the harness that sent it."""
    return {VERSION_LABEL: re.sub(r"[^a-z0-9_-]", "-", __version__.lower()), SPEC_LABEL: digest}
