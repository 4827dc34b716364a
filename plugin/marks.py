"""The markers, and the rule that a smoke test must have exercised something."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from t5x_harness.promotion.expression import TPU, promotes
from t5x_harness.promotion.resources import SIGNATURE, ResourcesError, TpuResources, merged

from ._pytest_internals import compiled_expression
from .options import network_policy

SMOKE = "smoke"

MARKERS = (
    "smoke: runs T5X here, on CPU devices laid out like a TPU slice; fails if it exercised nothing",
    "slice(name='v3-8'): the TPU slice, by name or topology such as v3:4x4, that t5x_run emulates in this test",
    "network(): lets this test and its runs reach beyond this machine; smoke tests and runs without it reach loopback "
    "only, unless --t5x-network=allow",
    f"{TPU}({SIGNATURE}): under -m tpu, and any other -m that selects it because of this mark alone, the test is "
    "promoted to a job on Vertex AI with these resources; it means nothing else",
)

# How many units of real work (train steps, examples, predictions) a test did through the harness.
EXERCISED = pytest.StashKey[int]()


def register(config: pytest.Config) -> None:
    """Documents the markers for ``pytest --markers`` and ``--strict-markers``."""
    for line in MARKERS:
        config.addinivalue_line("markers", line)


def count_exercise(item: pytest.Item, units: int) -> None:
    """Adds to the work that a test has done."""
    item.stash[EXERCISED] = item.stash.get(EXERCISED, 0) + units


def check_exercised(item: pytest.Item) -> None:
    """Fails a smoke test that did no work: a green that proves nothing is worse than a red."""
    if item.get_closest_marker(SMOKE) and not item.stash.get(EXERCISED, 0):
        pytest.fail(
            f"{item.name} is marked smoke but exercised nothing: no step was trained, no example read, evaluated or "
            "predicted through the harness. Call t5x_run in it, or remove the marker.",
            pytrace=False,
        )


def selects_only(expression: str, mark: str) -> bool:
    """Whether ``-m EXPRESSION`` selects an item because of ``mark``: true with that mark alone, false without it."""
    compiled = compiled_expression(expression) if mark in expression else None
    if compiled is None:
        return False
    return compiled.evaluate(lambda name, **_: name == mark) and not compiled.evaluate(lambda name, **_: False)


def promotes_tpu(expression: str) -> bool:
    """Whether ``-m EXPRESSION`` promotes the tests that it selects: none without the mark ``tpu`` is among them."""
    compiled = compiled_expression(expression) if TPU in expression else None
    return compiled is not None and promotes(lambda is_there: bool(compiled.evaluate(is_there)))


def tpu_resources(item: pytest.Item, otherwise: Mapping[str, Any]) -> TpuResources:
    """What the ``tpu`` markers of a test ask for: the closest counts most, then those of its class and module.

    Args:
      item: the test.
      otherwise: what holds where no marker says anything, such as the project's table.

    Raises:
      ResourcesError: a marker has an argument that there is not, or with a value that cannot be.
    """
    marks_ = list(item.iter_markers(TPU))
    for mark in marks_:
        if mark.args:
            given = ", ".join(map(repr, mark.args))
            raise ResourcesError(f"arguments are given by name, as accelerator_type='TPU_V3'; not {given}")
        TpuResources.of(mark.kwargs)
    return TpuResources.of(merged([*(mark.kwargs for mark in marks_), otherwise]))


def check_tpu(item: pytest.Item) -> None:
    """Fails a test, without a traceback, whose ``tpu`` marker has a mistake in it, promoted or not."""
    try:
        tpu_resources(item, {})
    except ResourcesError as error:
        pytest.fail(f"@pytest.mark.tpu: {error}", pytrace=False)


def network_allowed(item: pytest.Item) -> bool:
    """Whether a test, and the runs that it makes, may reach beyond this machine.

    Fails the test, without a traceback, if its ``network`` marker has arguments.
    """
    mark = item.get_closest_marker("network")
    if mark is None:
        return network_policy(item.config) == "allow"
    if mark.args or mark.kwargs:
        given = ", ".join([*map(repr, mark.args), *(f"{name}={value!r}" for name, value in mark.kwargs.items())])
        pytest.fail(f"use @pytest.mark.network, which takes no arguments; not network({given})", pytrace=False)
    return True


@contextlib.contextmanager
def network_guarded(item: pytest.Item) -> Iterator[None]:
    """Around a smoke test: Python's sockets in this process refuse whatever is beyond this machine."""
    if item.get_closest_marker(SMOKE) is None or network_allowed(item):
        yield
        return
    from t5x_harness.system.network import forbidden

    with forbidden():
        yield


def check_slice(item: pytest.Item) -> None:
    """Fails a test, without a traceback, whose ``slice`` marker is not one name of a slice."""
    name = slice_name(item)
    if name is not None and (problem := slice_problem(name)):
        pytest.fail(f"@pytest.mark.slice: {problem}", pytrace=False)


def slice_problem(name: str) -> str | None:
    """What is wrong with the name of a slice; None for one that exists."""
    from t5x_harness.slices.slice import SliceError, get_slice

    try:
        get_slice(name)
    except SliceError as error:
        return str(error)
    return None


def slice_name(item: pytest.Item) -> str | None:
    """The slice that the closest ``slice`` marker names; fails the test if its arguments are not one name."""
    mark = item.get_closest_marker("slice")
    if mark is None:
        return None
    values = [*mark.args, *mark.kwargs.values()]
    if len(values) != 1 or not isinstance(values[0], str) or set(mark.kwargs) - {"name"}:
        given = ", ".join([*map(repr, mark.args), *(f"{name}={value!r}" for name, value in mark.kwargs.items())])
        pytest.fail(f"use @pytest.mark.slice('v3-8'), one slice by name; not slice({given})", pytrace=False)
    name: str = values[0]
    return name
