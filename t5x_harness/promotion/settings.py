"""Where the jobs of promoted tests go, and what they may cost."""

import dataclasses
from collections.abc import Mapping
from typing import Any

DEFAULT_PARALLEL = 4

UNSEEN = "off"
"""The value that turns off the compilation of a job's programs."""

NOT_SENT = "--t5x-tpu-dry-run: the job was printed and not sent"
"""The reason why a test or stage that would have been a job was skipped."""


@dataclasses.dataclass(frozen=True)
class PromotionSettings:
    """Settings of promoted tests from the command line, the environment and the project.

    Attributes:
      service: the Vertex AI to use: ``real`` or ``emulated``.
      parallel: the maximum number of jobs at once.
      max_chip_hours: the maximum chip-hours of one job.
      dry_run: whether to print each job and send none.
      reuse: the names or numbers of jobs to use instead of new ones.
      aot: how the programs of jobs are compiled before they are sent, or ``off``; None if it is not set.
      defaults: fields of :class:`~t5x_harness.promotion.marker.TpuResources` that markers may leave open.
    """

    service: str
    parallel: int
    max_chip_hours: float
    dry_run: bool = False
    reuse: tuple[str, ...] = ()
    aot: str | None = None
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def emulated(self) -> bool:
        """Whether jobs go to the emulated Google Cloud."""
        return self.service == "emulated"
