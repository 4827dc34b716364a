"""Checks by name: what each kind of rule looks at.

A check is given the job and the rule's text. It yields a breach for each place where the rule is broken: the place, and
what fills in the rule's message.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator

from t5x_harness.google.vertex.validation.rules import Breach, Check, SpecRule
from t5x_harness.google.vertex.validation.subject import Subject

CHECKS: dict[str, Check] = {}
"""Every check by its name in ``rules.toml``; filled while this package's modules are imported."""

_GCS_URI = re.compile(r"gs://[a-z0-9][a-z0-9._-]*(/\S*)?")


def check(function: Check) -> Check:
    """Enters a function as the check of its name."""
    name = function.__name__
    if name in CHECKS:
        raise ValueError(f"there are two checks {name!r}")
    CHECKS[name] = function
    return function


@check
def required(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the field has a value."""
    for at, value in subject.resolve(rule.field):
        if not value:
            yield at, {}


@check
def must_be_unset(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the field has no value."""
    for at, value in subject.resolve(rule.field):
        if value:
            yield at, {"value": value}


@check
def max_length(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the text has at most ``limit`` characters."""
    for at, value in subject.resolve(rule.field):
        if len(value) > rule.parameters["limit"]:
            yield at, {"value": len(value)}


@check
def max_items(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that there are at most ``limit`` elements."""
    yield from max_length(subject, rule)


@check
def total_length(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the texts have at most ``limit`` characters together."""
    for at, values in subject.resolve(rule.field):
        total = sum(map(len, values))
        if total > rule.parameters["limit"]:
            yield at, {"value": total}


@check
def pattern(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the text is of that form; an empty one only matters with ``empty``."""
    for at, value in subject.resolve(rule.field):
        if (value or rule.parameters.get("empty")) and not re.fullmatch(rule.parameters["pattern"], value):
            yield at, {"value": value}


@check
def one_of(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the text, where there is one, is one of ``values``."""
    choices = rule.parameters["values"]
    for at, value in subject.resolve(rule.field):
        if value and value not in choices:
            yield at, {"value": value, "choices": ", ".join(choices)}


@check
def between(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the number, where it is not 0, which stands for the default, is between ``low`` and ``high``."""
    for at, value in subject.resolve(rule.field):
        if value and not rule.parameters["low"] <= value <= rule.parameters["high"]:
            yield at, {"value": value}


@check
def at_least(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the number is at least ``low``."""
    for at, value in subject.resolve(rule.field):
        if value < rule.parameters["low"]:
            yield at, {"value": value}


@check
def not_negative(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the number or duration is not negative."""
    for at, value in subject.resolve(rule.field):
        number = value if isinstance(value, int) else value.seconds + value.nanos / 1e9
        if number < 0:
            yield at, {"value": value if isinstance(value, int) else f"{number:g} seconds"}


@check
def increasing(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that each number is greater than the one before it, by 1e-10 at least."""
    for at, values in subject.resolve(rule.field):
        for before, value in itertools.pairwise(values):
            if value - before < 1e-10:
                yield at, {"value": f"{value:g}", "before": f"{before:g}"}
                break


@check
def gcs_uri(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that the text is an address in Cloud Storage."""
    for at, value in subject.resolve(rule.field):
        if not _GCS_URI.fullmatch(value):
            mounted = value.removeprefix("/gcs/")
            yield at, {"value": value, "fix": f": write gs://{mounted}" if mounted != value else ""}


@check
def unique_names(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that no two elements have the same ``name``."""
    yield from _twice(subject, rule, "name")


@check
def unique_ids(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that no two metrics have the same ``metric_id``, no two parameters the same ``parameter_id``."""
    yield from _twice(subject, rule, "metric_id" if rule.field.endswith("metrics") else "parameter_id")


def _twice(subject: Subject, rule: SpecRule, attribute: str) -> Iterator[Breach]:
    for at, elements in subject.resolve(rule.field):
        for name, times in Counter(getattr(element, attribute) for element in elements).items():
            if name and times > 1:
                yield at, {"value": name}
