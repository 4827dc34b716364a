"""What is found wrong with a job's spec, and how the service puts it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Violation:
    """A rule that a spec breaks.

    Attributes:
      field: as the service names it: ``job_spec.worker_pool_specs[0].machine_spec.accelerator_type``.
      message: what is wrong, and after it the smallest mend where one is known.
      code: of the failure catalogue, ``VTX04``; None for what the catalogue does not know.
      source: where the rule is from, for humans: a title and an address.
      rule: its name in ``rules.toml``.
    """

    field: str
    message: str
    code: str | None
    source: str
    rule: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}{f' [{self.code}]' if self.code else ''}"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What is to be said about a spec.

    Attributes:
      violations: for which the service refuses it; all of them, in the order of the rules.
      warnings: what rules say whose source is not the service's, and what the service takes and the job suffers from.
    """

    violations: tuple[Violation, ...]
    warnings: tuple[Violation, ...]


def error_message(violations: Iterable[Violation]) -> str:
    r"""The one text in which the service lists them all: ``List of found errors:\t1.Field: F; Message: M\t``."""
    listed = "".join(
        f"{number}.Field: {violation.field}; Message: {violation.message}\t"
        for number, violation in enumerate(violations, start=1)
    )
    return f"List of found errors:\t{listed}"
