"""Checks of what a hyperparameter tuning job searches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from t5x_harness.google.vertex.validation.checks import check
from t5x_harness.google.vertex.validation.rules import Breach, SpecRule
from t5x_harness.google.vertex.validation.subject import Subject

_RANGES = ("double_value_spec", "integer_value_spec")


@check
def more_parallel(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that no more trials run at once than there are altogether."""
    if subject.tunes and 0 < subject.message.max_trial_count < subject.message.parallel_trial_count:
        values = {"value": subject.message.parallel_trial_count, "trials": subject.message.max_trial_count}
        yield rule.field, values


@check
def parameter_values(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that each parameter says which values it may have."""
    for at, parameter in subject.resolve(rule.field):
        if parameter.WhichOneof("parameter_value_spec") is None:
            yield at, {}


@check
def parameter_range(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that a range is not upside down."""
    for at, parameter in subject.resolve(rule.field):
        kind = parameter.WhichOneof("parameter_value_spec")
        if kind in _RANGES:
            values = getattr(parameter, kind)
            if values.min_value > values.max_value:
                yield f"{at}.{kind}", {"low": f"{values.min_value:g}", "high": f"{values.max_value:g}"}


@check
def scale_of_categories(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Categories are not scaled."""
    for at, parameter in _parameters(subject):
        if parameter.scale_type and parameter.WhichOneof("parameter_value_spec") == "categorical_value_spec":
            yield f"{at}.scale_type", {}


@check
def scale_positive(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that a logarithmic scale has only values above 0."""
    for at, parameter in _parameters(subject):
        scale = _enum_name(parameter, "scale_type")
        smallest = _smallest(parameter)
        if "LOG" in scale and smallest is not None and smallest <= 0:
            yield f"{at}.scale_type", {"scale": scale, "value": f"{smallest:g}"}


@check
def grid_of_doubles(subject: Subject, rule: SpecRule) -> Iterator[Breach]:
    """Checks that a grid has only parameters that can be counted."""
    if subject.tunes and _enum_name(subject.message.study_spec, "algorithm") == "GRID_SEARCH":
        for _, parameter in _parameters(subject):
            if parameter.WhichOneof("parameter_value_spec") == "double_value_spec":
                yield rule.field, {"value": parameter.parameter_id}


def _parameters(subject: Subject) -> Iterator[tuple[str, Any]]:
    return subject.resolve("study_spec.parameters[]")


def _smallest(parameter: Any) -> float | None:
    kind = parameter.WhichOneof("parameter_value_spec")
    if kind in _RANGES:
        return float(getattr(parameter, kind).min_value)
    if kind == "discrete_value_spec" and parameter.discrete_value_spec.values:
        return float(min(parameter.discrete_value_spec.values))
    return None


def _enum_name(message: Any, field: str) -> str:
    known = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    number = getattr(message, field)
    return str(known[number].name) if number in known else ""
