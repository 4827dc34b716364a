"""Judges a job by every rule at once: what is found wrong with its spec."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from t5x_harness.google.vertex.validation import commands, jobs, machines, studies
from t5x_harness.google.vertex.validation.checks import CHECKS
from t5x_harness.google.vertex.validation.rulebook import RuleText, read_rules
from t5x_harness.google.vertex.validation.subject import Subject


@dataclasses.dataclass(frozen=True)
class Violation:
    """A rule that a spec breaks.

    Attributes:
      field: as the service names it: ``job_spec.worker_pool_specs[0].machine_spec.accelerator_type``.
      message: what is wrong, and after it the smallest fix where one is known.
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


# Importing a module with checks enters them into CHECKS.
_MODULES_WITH_CHECKS = (commands, jobs, machines, studies)


def judge(job: Any, location: str = "") -> Verdict:
    """Returns what the service refuses in a job, and what else is to be said about it.

    Args:
      job: a ``CustomJob`` or a ``HyperparameterTuningJob``, as the SDK's protobuf or proto-plus message.
      location: the region that it is sent to; without it, no rule about regions is applied.

    Raises:
      TypeError: it is the message of something else.
    """
    to_protobuf = getattr(type(job), "pb", None)
    subject = Subject(to_protobuf(job) if to_protobuf else job, location)
    refused: list[Violation] = []
    warned: list[Violation] = []
    for rule in read_rules():
        (refused if rule.refuses else warned).extend(_violations(subject, rule))
    return Verdict(tuple(refused), tuple(warned))


def _violations(subject: Subject, rule: RuleText) -> Iterator[Violation]:
    for at, values in CHECKS[rule.check](subject, rule):
        message = rule.message.format(**{**rule.parameters, **values})
        yield Violation(at, message, rule.code, str(rule.source), rule.name)
