"""The fields of a job's spec besides its machine, its container and its timeout: capacity, disk and network."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from t5x_harness.system.misspelling import closest

if TYPE_CHECKING:
    from google.cloud.aiplatform_v1 import types

STRATEGIES = ("STANDARD", "SPOT", "FLEX_START")
"""How Vertex AI may find machines for a job; the first is the default."""

RESERVATIONS = {"any": "ANY_RESERVATION", "none": "NO_RESERVATION"}
"""Which reservations a machine may use, unless a single one is named."""

_RESERVATION = re.compile(r"projects/[^/\s]+/zones/[^/\s]+/reservations/[^/\s]+")
_RESERVATION_KEY = "compute.googleapis.com/reservation-name"
_NETWORK = re.compile(r"projects/[^/\s]+/global/networks/[^/\s]+")
_DEFAULT_DISK = "pd-ssd"  # the service's default, as is a size of 100 GB


class JobOptionsError(ValueError):
    """A value is not valid; the message is one sentence that names it."""


@dataclasses.dataclass(frozen=True)
class JobOptions:
    """The options of a job; those that are None or False are left to Vertex AI.

    Attributes:
      strategy: one of :data:`STRATEGIES`: ``SPOT`` machines may be taken away, ``FLEX_START`` waits for machines.
      max_wait_duration: for how many seconds a job with ``FLEX_START`` waits at most.
      reservation: ``any``, ``none``, or ``projects/PROJECT/zones/ZONE/reservations/NAME``.
      network: the network that the job is peered with: ``projects/NUMBER/global/networks/NAME``.
      boot_disk_type: ``pd-ssd``, ``pd-standard``, ``hyperdisk-balanced``.
      boot_disk_size_gb: the size of the boot disk.
      restart_job_on_worker_restart: whether losing one worker restarts all of the job.
      disable_retries: whether the job is never tried again.

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
        """Selects the options from named values; None is the same as absent.

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
