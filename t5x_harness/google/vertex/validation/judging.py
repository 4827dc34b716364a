"""Judging a job by every rule at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from t5x_harness.google.vertex.validation import commands, jobs, machines, studies
from t5x_harness.google.vertex.validation.checks import CHECKS
from t5x_harness.google.vertex.validation.rulebook import RuleText, read_rules
from t5x_harness.google.vertex.validation.subject import Subject
from t5x_harness.google.vertex.validation.verdict import Verdict, Violation

# Importing a module with checks enters them into CHECKS.
_MODULES_WITH_CHECKS = (commands, jobs, machines, studies)


def judge(job: Any, location: str = "") -> Verdict:
    """What the service refuses in a job, and what else is to be said about it.

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
