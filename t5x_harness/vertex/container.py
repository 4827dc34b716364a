"""A container on one machine or TPU slice, as a Vertex AI CustomJob."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from t5x_harness.vertex.chip_hours import ChipHours
from t5x_harness.vertex.job_options import JobOptions
from t5x_harness.vertex.machine import Machine
from t5x_harness.vertex.target import VertexTarget

if TYPE_CHECKING:
    from google.cloud.aiplatform_v1 import types

FOUR_HOURS = 4 * 3600


@dataclasses.dataclass(frozen=True)
class ContainerJob:
    """A container on one machine or TPU slice, as a CustomJob, with any image and arguments.

    Attributes:
      name: its name in the console, of up to 128 characters.
      target: the project, region and image.
      machine: the machine of the worker pool.
      args: the arguments of the container's entry point.
      command: replaces the image's entry point, if it is not empty.
      env: variables of the container.
      timeout: seconds after which Vertex AI ends the job.
      output: the ``gs://…`` folder for results, below which are AIP_MODEL_DIR and the like.
      labels: labels of the job; keys and values have lowercase letters, digits, ``_`` and ``-``.
      options: further fields of its spec.
    """

    name: str
    target: VertexTarget
    machine: Machine
    args: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    timeout: int = FOUR_HOURS
    output: str = ""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    options: JobOptions = dataclasses.field(default_factory=JobOptions)

    def to_pb(self) -> types.CustomJob:
        """Returns the message that CreateCustomJob takes.

        Raises:
          MachineError: there is no accelerator of this name.
        """
        from google.cloud.aiplatform_v1 import types

        container = types.ContainerSpec(
            image_uri=self.target.image,
            command=self.command,
            args=self.args,
            env=[types.EnvVar(name=name, value=value) for name, value in sorted(self.env.items())],
        )
        # A TPU pool is one replica, no matter how many hosts its slice has.
        pool = types.WorkerPoolSpec(machine_spec=self.machine.to_pb(), replica_count=1, container_spec=container)
        spec = types.CustomJobSpec(
            worker_pool_specs=[pool],
            scheduling=types.Scheduling(timeout={"seconds": self.timeout}),
            service_account=self.target.service_account,
            base_output_directory=types.GcsDestination(output_uri_prefix=self.output),
        )
        self.options.fill(spec)
        return types.CustomJob(display_name=self.name, labels=dict(self.labels), job_spec=spec)

    @property
    def chip_hours(self) -> ChipHours:
        """The most chip-hours that the job can use."""
        return ChipHours.of(self.machine, self.timeout)
