"""The rules of ``rules.toml`` as values."""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib.resources
import tomllib
from collections.abc import Mapping
from typing import Any


class Confidence(enum.StrEnum):
    """How sure it is that the service judges so; ``rules.toml`` says what each means."""

    OBSERVED = "observed"
    DOCUMENTED = "documented"
    REPORTED = "reported"
    ASSUMED = "assumed"


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a rule is from; ``url`` is empty for what has no source."""

    title: str
    url: str

    def __str__(self) -> str:
        return f"{self.title} ({self.url})" if self.url else self.title


@dataclasses.dataclass(frozen=True)
class RuleText:
    """A rule as the data file has it.

    Attributes:
      field: the path of what it judges, as ``rules.toml`` explains.
      check: the name of the function that judges.
      message: with the places that the check fills.
      accepted: whether the service takes what breaks it.
      code: of the failure catalogue, or None.
      parameters: of the check: ``limit``, ``pattern``, ….
    """

    name: str
    field: str
    check: str
    message: str
    source: Source
    confidence: Confidence
    accepted: bool
    code: str | None
    parameters: Mapping[str, Any]

    @property
    def refuses(self) -> bool:
        """Whether the emulation refuses what breaks it; else it warns."""
        return not self.accepted and self.confidence in (Confidence.OBSERVED, Confidence.DOCUMENTED)


_FIELDS = {"name", "field", "check", "message", "source", "confidence", "accepted", "code"}


@functools.cache
def read_table(name: str) -> Mapping[str, Any]:
    """Returns a data file of this package, parsed."""
    return tomllib.loads(importlib.resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


@functools.cache
def read_rules() -> tuple[RuleText, ...]:
    """Returns every rule, in the file's order, in which violations are listed."""
    table = read_table("rules.toml")
    sources = {name: Source(**about) for name, about in table["sources"].items()}
    return tuple(_rule(entry, sources) for entry in table["rule"])


def _rule(entry: Mapping[str, Any], sources: Mapping[str, Source]) -> RuleText:
    return RuleText(
        name=entry["name"],
        field=entry["field"],
        check=entry["check"],
        message=entry["message"],
        source=sources[entry["source"]],
        confidence=Confidence(entry["confidence"]),
        accepted=entry.get("accepted", False),
        code=entry.get("code"),
        parameters={name: value for name, value in entry.items() if name not in _FIELDS},
    )
