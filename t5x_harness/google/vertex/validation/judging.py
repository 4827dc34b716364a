"""Judges the spec of a job by every rule at once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from t5x_harness.google.vertex.validation import jobs, machines
from t5x_harness.google.vertex.validation.checks import CHECKS
from t5x_harness.google.vertex.validation.rules import SpecRule, read_table, rules_in
from t5x_harness.google.vertex.validation.subject import Subject


@dataclasses.dataclass(frozen=True)
class SpecViolation:
    """A rule that a spec breaks.

    Attributes:
      field: the service's name of the field: ``job_spec.worker_pool_specs[0].machine_spec.accelerator_type``.
      message: what is wrong, followed by the smallest fix if one is known.
      code: the code in the failure catalogue, such as ``VTX04``, if there is one.
      source: where the rule comes from, as a title and an address.
      rule: its name in the file of rules.
    """

    field: str
    message: str
    code: str | None
    source: str
    rule: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}{f' [{self.code}]' if self.code else ''}"


@dataclasses.dataclass(frozen=True)
class SpecVerdict:
    """All violations in a spec, in the order of the rules.

    Attributes:
      violations: those for which the service refuses the job.
      warnings: violations of rules that do not come from the service, and of rules that break only the running job.
    """

    violations: tuple[SpecViolation, ...]
    warnings: tuple[SpecViolation, ...]


# Importing a module with checks enters them into CHECKS.
_MODULES_WITH_CHECKS = (jobs, machines)


@functools.cache
def service_rules() -> tuple[SpecRule, ...]:
    """Returns every rule of the service itself."""
    return rules_in(read_table(__package__, "rules.toml"), CHECKS)


def judge(job: Any, location: str = "", more: Sequence[SpecRule] = ()) -> SpecVerdict:
    """Returns what the service refuses in a job, and what else may be wrong with it.

    Args:
      job: a ``CustomJob`` or a ``HyperparameterTuningJob``, as the SDK's protobuf or proto-plus message.
      location: the region that it is sent to; without it, no rule about regions is applied.
      more: rules besides those of the service.

    Raises:
      TypeError: it is the message of something else.
    """
    to_protobuf = getattr(type(job), "pb", None)
    subject = Subject(to_protobuf(job) if to_protobuf else job, location)
    refused: list[SpecViolation] = []
    warned: list[SpecViolation] = []
    for rule in (*service_rules(), *more):
        (refused if rule.refuses else warned).extend(_violations(subject, rule))
    return SpecVerdict(tuple(refused), tuple(warned))


def _violations(subject: Subject, rule: SpecRule) -> Iterator[SpecViolation]:
    for at, values in rule.check(subject, rule):
        message = rule.message.format(**{**rule.parameters, **values})
        yield SpecViolation(at, message, rule.code, str(rule.source), rule.name)
