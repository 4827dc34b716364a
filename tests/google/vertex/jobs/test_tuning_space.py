"""What a study searches, and which parameters it suggests."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")

from google.cloud import aiplatform_v1 as vertex
from hypothesis import given
from hypothesis import strategies as st

from t5x_harness.google.vertex.jobs.trials import TunedParameter, assign, grid, parameters_of, suggest

LINEAR, LOG, REVERSE_LOG = 1, 2, 3
DEFAULT, GRID, RANDOM = 0, 2, 3

CONDITIONAL = {
    "parameter_id": "optimizer",
    "categorical_value_spec": {"values": ["sgd", "adam"]},
    "conditional_parameter_specs": [
        {
            "parent_categorical_values": {"values": ["sgd"]},
            "parameter_spec": {"parameter_id": "momentum", "discrete_value_spec": {"values": [0.5, 0.9]}},
        }
    ],
}


def space(*specs: dict[str, Any]) -> tuple[TunedParameter, ...]:
    return parameters_of(vertex.StudySpec.pb(vertex.StudySpec(parameters=list(specs))))


def double(low: float, high: float, scale: int = LINEAR) -> dict[str, Any]:
    return {"parameter_id": "x", "double_value_spec": {"min_value": low, "max_value": high}, "scale_type": scale}


def integer(low: int, high: int, scale: int = LINEAR) -> dict[str, Any]:
    return {"parameter_id": "n", "integer_value_spec": {"min_value": low, "max_value": high}, "scale_type": scale}


PLACES = st.floats(0, 1, exclude_max=True)


@given(PLACES, st.sampled_from([LINEAR, LOG, REVERSE_LOG]), st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)))
def test_doubles_are_in_their_range(place: float, scale: int, bounds: tuple[float, float]) -> None:
    low, high = sorted(bounds)
    (parameter,) = space(double(low, high, scale))
    assert low <= float(parameter.at(place)) <= high


@given(PLACES, st.sampled_from([LINEAR, LOG, REVERSE_LOG]), st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)))
def test_integers_are_whole_and_in_their_range(place: float, scale: int, bounds: tuple[int, int]) -> None:
    low, high = sorted(bounds)
    (parameter,) = space(integer(low, high, scale))
    value = parameter.at(place)
    assert isinstance(value, int)
    assert low <= value <= high


@pytest.mark.parametrize(
    ("scale", "middle"), [(LINEAR, 50.0005), (LOG, math.sqrt(0.001 * 100)), (REVERSE_LOG, 100.001 - math.sqrt(0.1))]
)
def test_scales(scale: int, middle: float) -> None:
    (parameter,) = space(double(0.001, 100, scale))
    assert parameter.at(0.5) == pytest.approx(middle)
    assert parameter.at(0.0) == pytest.approx(0.001)


def test_each_integer_is_as_likely_as_the_others() -> None:
    (parameter,) = space(integer(1, 3))
    values = [parameter.at(place / 300) for place in range(300)]
    assert [values.count(n) for n in (1, 2, 3)] == [100, 100, 100]


def test_choices_are_values_as_they_are_given() -> None:
    category, discrete = space(
        {"parameter_id": "c", "categorical_value_spec": {"values": ["a", "b"]}},
        {"parameter_id": "d", "discrete_value_spec": {"values": [1.5, 64]}},
    )
    assert [category.at(place) for place in (0, 0.49, 0.5, 0.99)] == ["a", "a", "b", "b"]
    assert discrete.values() == (1.5, 64)


def test_conditional_parameters_are_asked_for_only_with_their_parent_s_values() -> None:
    parameters = space(CONDITIONAL)
    assert assign(parameters, lambda each: each.values()[0]) == {"optimizer": "sgd", "momentum": 0.5}
    assert assign(parameters, lambda each: each.values()[-1]) == {"optimizer": "adam"}


def test_a_condition_on_numbers_allows_for_rounding() -> None:
    below = {"parameter_id": "y", "integer_value_spec": {"min_value": 1, "max_value": 1}}
    condition = {"parent_discrete_values": {"values": [0.1 + 0.2]}, "parameter_spec": below}
    spec = {"parameter_id": "x", "discrete_value_spec": {"values": [0.3]}, "conditional_parameter_specs": [condition]}
    assert assign(space(spec), lambda each: each.values()[0]) == {"x": 0.3, "y": 1}


def test_a_grid_has_every_assignment_once() -> None:
    assert list(grid(space(integer(1, 2), CONDITIONAL))) == [
        {"n": n, **rest}
        for n in (1, 2)
        for rest in (
            {"optimizer": "sgd", "momentum": 0.5},
            {"optimizer": "sgd", "momentum": 0.9},
            {"optimizer": "adam"},
        )
    ]


def test_a_grid_search_ends_with_its_grid() -> None:
    found = [suggest(space(integer(1, 3)), GRID, "seed", number) for number in range(5)]
    assert found == [{"n": 1}, {"n": 2}, {"n": 3}, None, None]


@pytest.mark.parametrize("algorithm", [DEFAULT, RANDOM])
def test_values_at_random_are_the_same_for_the_same_study(algorithm: int) -> None:
    parameters = space(double(0, 1), CONDITIONAL)

    def suggested(seed: str) -> list[Any]:
        return [suggest(parameters, algorithm, seed, number) for number in range(8)]

    assert suggested("seed") == suggested("seed") != suggested("other")
    assert len({each["x"] for each in suggested("seed")}) == 8
