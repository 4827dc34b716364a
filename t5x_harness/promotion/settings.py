"""How promoted tests run: where their jobs go, how many at once, and what they may cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Self

from t5x_harness.promotion.resources import TpuResources, resources_in
from t5x_harness.vertex.chip_hours import DEFAULT_MAX_CHIP_HOURS
from t5x_harness.vertex.target import EMULATED, PLACEHOLDERS, VertexTarget, VertexTargetError, find_target, variable_of

DEFAULT_PARALLEL = 4

UNSEEN = "off"
"""What the option for compiling a job's programs before says to have them sent unseen."""

NOT_SENT = "--t5x-tpu-dry-run: the job was printed and not sent"
"""Why a test was skipped, or a stage not run, that would have been a job."""


@dataclasses.dataclass(frozen=True)
class PromotionSettings:
    """What the command line, the environment and the project say about promoted tests.

    Attributes:
      service: ``real`` or ``emulated``.
      parallel: how many jobs may be there at once.
      max_chip_hours: what one job may use up at the most.
      dry_run: print each job and send none.
      reuse: names or numbers of jobs to take in the place of new ones.
      aot: how the programs of jobs are compiled before they are sent, or ``off``; None where nobody says.
      defaults: fields of :class:`~t5x_harness.promotion.resources.TpuResources` for tests whose markers say nothing.
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
        """Takes them out of what is given.

        Args:
          given: values of options, variables and ini file, by field; None where none is given.
          table: resources of the project's file.
          emulated: whether jobs go to the emulated Google Cloud where nothing else is given.

        Raises:
          ResourcesError: a resource of the ini file has a mistake in it.
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
    def values_of_nobody(self) -> Mapping[str, str]:
        """What stands for values of the target that nobody gives."""
        return EMULATED if self.emulated else PLACEHOLDERS if self.dry_run else {}

    def shrinks(self, resources: TpuResources) -> bool:
        """Returns whether a test with these resources runs at the sizes that smoke has."""
        return not resources.full_size if resources.full_size is not None else self.emulated


def target_of(
    settings: PromotionSettings,
    given: Mapping[str, str | None],
    environment: Mapping[str, str],
    project: Mapping[str, str],
    option_of: Callable[[str], str],
) -> VertexTarget:
    """Returns where jobs go.

    Args:
      settings: whether to the emulated Google Cloud, which needs nothing to be named.
      given: values of the command line and pytest's ini file, by field.
      environment: variables of the process.
      project: the table of the project's file.
      option_of: the name of the option for a field, for messages.

    Raises:
      VertexTargetError: values are missing, all of which the message names with the ways to give them; or one is wrong.
    """
    try:
        return find_target(given, environment, project, settings.values_of_nobody)
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
