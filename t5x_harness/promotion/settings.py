"""Settings of promoted tests: where their jobs go, how many run at once, and what they may cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Self

from t5x_harness.promotion.resources import TpuResources, resources_in
from t5x_harness.vertex.chip_hours import DEFAULT_MAX_CHIP_HOURS
from t5x_harness.vertex.target import EMULATED, PLACEHOLDERS, VertexTarget, VertexTargetError, find_target, variable_of

DEFAULT_PARALLEL = 4

UNSEEN = "off"
"""The value of the option for compiling a job's programs that turns compiling off."""

NOT_SENT = "--t5x-tpu-dry-run: the job was printed and not sent"
"""Why a test was skipped or a stage did not run that would have been a job."""


@dataclasses.dataclass(frozen=True)
class PromotionSettings:
    """Settings of promoted tests from the command line, the environment and the project.

    Attributes:
      service: ``real`` or ``emulated``.
      parallel: the most jobs at once.
      max_chip_hours: the most chip-hours of one job.
      dry_run: print each job and send none.
      reuse: names or numbers of jobs to use instead of new ones.
      aot: how the programs of jobs are compiled before they are sent, or ``off``; None if it is not set.
      defaults: fields of :class:`~t5x_harness.promotion.resources.TpuResources` that markers may leave open.
    """

    service: str
    parallel: int
    max_chip_hours: float
    dry_run: bool = False
    reuse: tuple[str, ...] = ()
    aot: str | None = None
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any], table: Mapping[str, Any], *, emulated: bool) -> Self:
        """Makes the settings from given values.

        Args:
          given: values of options, variables and ini file, by field; None for values that are not given.
          table: resources in the project's file.
          emulated: whether jobs go to the emulated Google Cloud by default.

        Raises:
          ResourcesError: a resource in the ini file is invalid.
        """
        return cls(
            service=given["vertex"] or ("emulated" if emulated else "real"),
            parallel=given["parallel"] or DEFAULT_PARALLEL,
            max_chip_hours=given["max_chip_hours"] or DEFAULT_MAX_CHIP_HOURS,
            dry_run=bool(given["dry_run"]),
            reuse=tuple(given["reuse"]),
            aot=given["tpu_aot"],
            defaults={**table, **resources_in(given["tpu"] or ())},
        )

    @property
    def emulated(self) -> bool:
        """Whether jobs go to the emulated Google Cloud."""
        return self.service == "emulated"

    @property
    def placeholders(self) -> Mapping[str, str]:
        """Values for fields of the target that are not given."""
        return EMULATED if self.emulated else PLACEHOLDERS if self.dry_run else {}

    def shrinks(self, resources: TpuResources) -> bool:
        """Returns whether a test with these resources runs at the sizes of smoke."""
        return not resources.full_size if resources.full_size is not None else self.emulated


def target_of(
    settings: PromotionSettings,
    given: Mapping[str, str | None],
    environment: Mapping[str, str],
    project: Mapping[str, str],
    option_of: Callable[[str], str],
) -> VertexTarget:
    """Finds where jobs go.

    Args:
      settings: its placeholders fill fields that are not given.
      given: values of the command line and pytest's ini file, by field.
      environment: variables of the process.
      project: the table in the project's file.
      option_of: returns the name of a field's option, for messages.

    Raises:
      VertexTargetError: values are missing, and the message says how to set each; or a value is invalid.
    """
    try:
        return find_target(given, environment, project, settings.placeholders)
    except VertexTargetError as error:
        if not error.missing:
            raise
        ways = "\n".join(f"    {name}: {option_of(name)}=… or {variable_of(name)}" for name in error.missing)
        raise VertexTargetError(
            f"tests are promoted to TPU jobs, and no Vertex AI target is configured. Missing:\n{ways}\n"
            "    or [tool.t5x_harness.vertex] of pyproject.toml, or a conftest's own fixture vertex_target\n"
            "    without a cloud: --t5x-vertex=emulated runs the jobs on this machine, against an emulated Vertex AI; "
            "--t5x-tpu-dry-run shows them with placeholders",
            error.missing,
        ) from None
