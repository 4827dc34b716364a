"""Checks by name: what each kind of rule looks at.

A check of values is given one value of the rule's field, a check of pools one worker pool, and a check of jobs the
whole job. Each returns what fills in the rule's message if the rule is broken, and None if it is not.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from t5x_harness.google.vertex.validation.rules import Breach, Check, SpecRule
from t5x_harness.google.vertex.validation.subject import PoolSpec, Subject

Values: TypeAlias = Mapping[str, Any]
OfValue: TypeAlias = Callable[[Any, SpecRule], Values | None]
OfPool: TypeAlias = Callable[[PoolSpec, Subject], Values | None]
OfJob: TypeAlias = Callable[[Subject, SpecRule], Values | None]

CHECKS: dict[str, Check] = {}
"""Every check by its name in ``rules.toml``; filled while this package's modules are imported."""

_GCS_URI = re.compile(r"gs://[a-z0-9][a-z0-9._-]*(/\S*)?")


def of_values(broken: OfValue) -> Check:
    """Makes a check of a function that looks at each value of the rule's field."""

    @functools.wraps(broken)
    def check(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
        for at, value in subject.resolve(rule.field):
            if (values := broken(value, rule)) is not None:
                yield at, values

    return check


def enter(check: Check) -> Check:
    """Enters a check under its name."""
    name = check.__name__
    if name in CHECKS:
        raise ValueError(f"there are two checks {name!r}")
    CHECKS[name] = check
    return check


def value_check(broken: OfValue) -> OfValue:
    """Enters a check of values."""
    enter(of_values(broken))
    return broken


def pool_check(broken: OfPool) -> OfPool:
    """Enters a check of worker pools, whose rules have a field of each pool."""

    @functools.wraps(broken)
    def check(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
        below = rule.field.partition("]")[2]
        for pool in subject.pools:
            if (values := broken(pool, subject)) is not None:
                yield f"{pool.path}{below}", values

    enter(check)
    return broken


def job_check(broken: OfJob) -> OfJob:
    """Enters a check of a job as a whole."""

    @functools.wraps(broken)
    def check(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
        if (values := broken(subject, rule)) is not None:
            yield re.sub(r"^spec\b", subject.spec_field, rule.field), values

    enter(check)
    return broken


@value_check
def required(value: Any, _rule: SpecRule) -> Values | None:
    """Checks that the field has a value."""
    return None if value else {}


@value_check
def must_be_unset(value: Any, _rule: SpecRule) -> Values | None:
    """Checks that the field has no value."""
    return {"value": value} if value else None


@value_check
def max_length(value: Any, rule: SpecRule) -> Values | None:
    """Checks that the text has at most ``limit`` characters, or the list so many elements."""
    return {"value": len(value)} if len(value) > rule.parameters["limit"] else None


@value_check
def total_length(values: Any, rule: SpecRule) -> Values | None:
    """Checks that the texts have at most ``limit`` characters together."""
    total = sum(map(len, values))
    return {"value": total} if total > rule.parameters["limit"] else None


@value_check
def pattern(value: str, rule: SpecRule) -> Values | None:
    """Checks that the text is of that form; an empty one only matters with ``empty``."""
    is_checked = value or rule.parameters.get("empty")
    return {"value": value} if is_checked and not re.fullmatch(rule.parameters["pattern"], value) else None


@value_check
def one_of(value: str, rule: SpecRule) -> Values | None:
    """Checks that the text, if there is one, is one of ``values``."""
    choices = rule.parameters["values"]
    return {"value": value, "choices": ", ".join(choices)} if value and value not in choices else None


@value_check
def between(value: Any, rule: SpecRule) -> Values | None:
    """Checks that the number is between ``low`` and ``high``; 0 stands for the default."""
    is_outside = value and not rule.parameters["low"] <= value <= rule.parameters["high"]
    return {"value": value} if is_outside else None


@value_check
def at_least(value: Any, rule: SpecRule) -> Values | None:
    """Checks that the number is at least ``low``."""
    return {"value": value} if value < rule.parameters["low"] else None


@value_check
def not_negative(value: Any, _rule: SpecRule) -> Values | None:
    """Checks that the number or duration is not negative."""
    if isinstance(value, int):
        return {"value": value} if value < 0 else None
    seconds = value.seconds + value.nanos / 1e9
    return {"value": f"{seconds:g} seconds"} if seconds < 0 else None


@value_check
def increasing(values: Any, _rule: SpecRule) -> Values | None:
    """Checks that each number is greater than the one before it, by 1e-10 at least."""
    for before, value in itertools.pairwise(values):
        if value - before < 1e-10:
            return {"value": f"{value:g}", "before": f"{before:g}"}
    return None


@value_check
def gcs_uri(value: str, _rule: SpecRule) -> Values | None:
    """Checks that the text is an address in Cloud Storage."""
    if _GCS_URI.fullmatch(value):
        return None
    mounted = value.removeprefix("/gcs/")
    return {"value": value, "fix": f": write gs://{mounted}" if mounted != value else ""}


@enter
def unique(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that no two elements have the same attribute ``by``."""
    for at, elements in subject.resolve(rule.field):
        for name, times in Counter(getattr(element, rule.parameters["by"]) for element in elements).items():
            if name and times > 1:
                yield at, {"value": name}


@job_check
def required_with(subject: Subject, rule: SpecRule) -> Values | None:
    """Checks that the field is set if the field ``other`` is."""
    return {} if subject.has(rule.parameters["other"]) and not subject.has(rule.field) else None


@job_check
def only_with(subject: Subject, rule: SpecRule) -> Values | None:
    """Checks that the field is set only if the field ``other`` is."""
    return {} if subject.has(rule.field) and not subject.has(rule.parameters["other"]) else None


@job_check
def not_with(subject: Subject, rule: SpecRule) -> Values | None:
    """Checks that the field is not set if the field ``other`` is."""
    return {} if subject.has(rule.field) and subject.has(rule.parameters["other"]) else None
