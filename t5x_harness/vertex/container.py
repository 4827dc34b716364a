"""A container on one machine or TPU slice, as a Vertex AI CustomJob with options for capacity, disk and network."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from t5x_harness.system.field_types import fault_in
from t5x_harness.system.misspelling import closest
from t5x_harness.vertex.machine import ChipHours, Machine
from t5x_harness.vertex.target import VertexTarget

if TYPE_CHECKING:
    from google.cloud.aiplatform_v1 import types

STRATEGIES = ("STANDARD", "SPOT", "FLEX_START")
"""How Vertex AI may find machines for a job; the first is the default."""

RESERVATIONS = {"any": "ANY_RESERVATION", "none": "NO_RESERVATION"}
"""The reservations that a machine may use, unless a single one is named."""

_RESERVATION = re.compile(r"projects/[^/\s]+/zones/[^/\s]+/reservations/[^/\s]+")
_RESERVATION_KEY = "compute.googleapis.com/reservation-name"
_NETWORK = re.compile(r"projects/[^/\s]+/global/networks/[^/\s]+")
_DEFAULT_DISK = "pd-ssd"  # the service's default; its default size is 100 GB


class JobOptionsError(ValueError):
    """A value is invalid; the message is one sentence that names it."""


@dataclasses.dataclass(frozen=True)
class JobOptions:
    """The options of a job; those that are None or False are left to Vertex AI.

    Attributes:
      strategy: one of :data:`STRATEGIES`. ``SPOT`` machines may be taken away; ``FLEX_START`` waits for machines.
      max_wait_duration: the maximum wait of a job with ``FLEX_START``, in seconds.
      reservation: ``any``, ``none``, or ``projects/PROJECT/zones/ZONE/reservations/NAME``.
      network: the network that the job is peered with: ``projects/NUMBER/global/networks/NAME``.
      boot_disk_type: ``pd-ssd``, ``pd-standard`` or ``hyperdisk-balanced``.
      boot_disk_size_gb: the size of the boot disk in GB.
      restart_job_on_worker_restart: whether losing one worker restarts the whole job.
      disable_retries: whether the job is never retried.

    Raises:
      JobOptionsError: a value is not valid.
    """

    strategy: str | None = None
    max_wait_duration: int | None = None
    reservation: str | None = None
    network: str | None = None
    boot_disk_type: str | None = None
    boot_disk_size_gb: int | None = None
    restart_job_on_worker_restart: bool = False
    disable_retries: bool = False

    def __post_init__(self) -> None:
        if fault := fault_in(self):
            raise JobOptionsError(fault)
        if self.strategy is not None and self.strategy not in STRATEGIES:
            near = closest(self.strategy.replace("-", "_"), STRATEGIES)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(STRATEGIES)}"
            raise JobOptionsError(f"strategy {self.strategy!r}: {hint}")
        if self.max_wait_duration is not None and self.strategy != "FLEX_START":
            raise JobOptionsError(
                f"max_wait_duration is how long a job with the strategy FLEX_START waits; the strategy is "
                f"{self.strategy or 'not given'}"
            )
        if self.reservation and self.reservation not in RESERVATIONS and not _RESERVATION.fullmatch(self.reservation):
            raise JobOptionsError(
                f"reservation {self.reservation!r}: give any, none, or projects/PROJECT/zones/ZONE/reservations/NAME"
            )
        if self.network and not _NETWORK.fullmatch(self.network):
            raise JobOptionsError(f"network {self.network!r}: give projects/NUMBER/global/networks/NAME")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> JobOptions:
        """Selects the options from named values; a None value counts as absent.

        Raises:
          JobOptionsError: a value is not valid.
        """
        names = (field.name for field in dataclasses.fields(cls))
        return cls(**{name: value for name in names if (value := values.get(name)) is not None})

    def fill(self, spec: types.CustomJobSpec) -> None:
        """Writes the options into a job's spec."""
        from google.cloud.aiplatform_v1 import types

        scheduling, pool = spec.scheduling, spec.worker_pool_specs[0]
        if self.strategy is not None:
            scheduling.strategy = types.Scheduling.Strategy[self.strategy]
        if self.max_wait_duration is not None:
            scheduling.max_wait_duration = {"seconds": self.max_wait_duration}
        scheduling.restart_job_on_worker_restart = self.restart_job_on_worker_restart
        scheduling.disable_retries = self.disable_retries
        if self.network is not None:
            spec.network = self.network
        if self.boot_disk_type or self.boot_disk_size_gb:
            pool.disk_spec = types.DiskSpec(
                boot_disk_type=self.boot_disk_type or _DEFAULT_DISK, boot_disk_size_gb=self.boot_disk_size_gb or 100
            )
        if self.reservation in RESERVATIONS:
            pool.machine_spec.reservation_affinity = types.ReservationAffinity(
                reservation_affinity_type=RESERVATIONS[self.reservation]
            )
        elif self.reservation:
            pool.machine_spec.reservation_affinity = types.ReservationAffinity(
                reservation_affinity_type="SPECIFIC_RESERVATION", key=_RESERVATION_KEY, values=[self.reservation]
            )


FOUR_HOURS = 4 * 3600


@dataclasses.dataclass(frozen=True)
class ContainerJob:
    """A container on one machine or TPU slice, as a CustomJob, with any image and arguments.

    Attributes:
      name: its name in the console, up to 128 characters long.
      target: the project, region and image.
      machine: the machine of the worker pool.
      args: the arguments for the container's entry point.
      command: the replacement for the image's entry point; empty to keep it.
      env: environment variables of the container.
      timeout: the seconds after which Vertex AI ends the job.
      output: the ``gs://…`` folder for results, which contains AIP_MODEL_DIR and similar folders.
      labels: labels of the job; keys and values consist of lowercase letters, digits, ``_`` and ``-``.
      options: further fields of the job's spec.

    Raises:
      JobOptionsError: the environment variables or labels are not texts.
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

    def __post_init__(self) -> None:
        if fault := fault_in(self, ("env", "labels")):
            raise JobOptionsError(fault)

    def to_pb(self) -> types.CustomJob:
        """Returns the message that CreateCustomJob takes.

        Raises:
          MachineError: there is no accelerator with this name.
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
        """The maximum chip-hours that the job can use."""
        return ChipHours.of(self.machine, self.timeout)
