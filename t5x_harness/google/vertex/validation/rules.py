"""The rules of ``rules.toml`` as values, and those of other files of its form."""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib.resources
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from t5x_harness.google.vertex.validation.subject import Subject


class Confidence(enum.StrEnum):
    """How certain it is that the service applies a rule; ``rules.toml`` explains each value."""

    OBSERVED = "observed"
    DOCUMENTED = "documented"
    REPORTED = "reported"
    ASSUMED = "assumed"


@dataclasses.dataclass(frozen=True)
class RuleSource:
    """Where a rule comes from. A rule that has no source has no ``url``."""

    title: str
    url: str

    def __str__(self) -> str:
        return f"{self.title} ({self.url})" if self.url else self.title


Breach: TypeAlias = tuple[str, Mapping[str, Any]]
"""The place where a rule is broken, and what fills in the rule's message."""

Check: TypeAlias = "Callable[[Subject, SpecRule], Iterator[Breach]]"


@dataclasses.dataclass(frozen=True)
class SpecRule:
    """A rule for the specs of jobs.

    Attributes:
      field: the path of the field that it is about, as ``rules.toml`` explains.
      check: yields a breach for each place where the rule is broken.
      message: the message, with placeholders that the check fills in.
      accepted: whether the service accepts jobs that break it.
      code: its code in the failure catalogue, if it has one.
      parameters: the parameters of the check, such as ``limit`` or ``pattern``.
    """

    name: str
    field: str
    check: Check
    message: str
    source: RuleSource
    confidence: Confidence
    accepted: bool
    code: str | None
    parameters: Mapping[str, Any]

    @property
    def refuses(self) -> bool:
        """Whether the emulation refuses a job that breaks it; otherwise it warns."""
        return not self.accepted and self.confidence in (Confidence.OBSERVED, Confidence.DOCUMENTED)


_FIELDS = {"name", "field", "check", "message", "source", "confidence", "accepted", "code"}


@functools.cache
def read_table(package: str, name: str) -> Mapping[str, Any]:
    """Returns a data file of a package, parsed."""
    return tomllib.loads(importlib.resources.files(package).joinpath(name).read_text(encoding="utf-8"))


def rules_in(table: Mapping[str, Any], checks: Mapping[str, Check]) -> tuple[SpecRule, ...]:
    """Returns the rules of a data file, in the file's order, in which violations are listed.

    Args:
      checks: the functions that the file names.
    """
    sources = {name: RuleSource(**about) for name, about in table["sources"].items()}
    return tuple(_rule(entry, sources[entry["source"]], checks[entry["check"]]) for entry in table["rule"])


def _rule(entry: Mapping[str, Any], source: RuleSource, check: Check) -> SpecRule:
    return SpecRule(
        name=entry["name"],
        field=entry["field"],
        check=check,
        message=entry["message"],
        source=source,
        confidence=Confidence(entry["confidence"]),
        accepted=entry.get("accepted", False),
        code=entry.get("code"),
        parameters={name: value for name, value in entry.items() if name not in _FIELDS},
    )
