"""The markers, and the rule that a smoke test must exercise something."""

from collections.abc import Mapping
from typing import Any

import pytest

from t5x_harness.fixtures.runs import fail_at_marker, fault_of, hosts_of, slice_name, written
from t5x_harness.promotion.marker import AOT, SMOKE, TPU, ResourcesError, TpuResources
from t5x_harness.settings.auxiliary import Auxiliary

from .session import SESSION

# The units of real work (train steps, examples, predictions) that a test did through the harness.
EXERCISED = pytest.StashKey[int]()
JOBS = pytest.StashKey[int]()
AUXILIARY_RUNS = pytest.StashKey[int]()  # not set if the test requested none


def count(item: pytest.Item, what: pytest.StashKey[int], number: int) -> None:
    """Adds to the count of a test's observed work, of its jobs, or of its auxiliary runs."""
    item.stash[what] = item.stash.get(what, 0) + number


def begin(item: pytest.Item) -> None:
    """Resets the counts of a test, because plugins such as pytest-rerunfailures may run it again."""
    for what in (EXERCISED, JOBS, AUXILIARY_RUNS):
        if what in item.stash:
            del item.stash[what]


def check_exercised(item: pytest.Item) -> None:
    """Fails a smoke test that did no work, because a green that proves nothing is worse than a red."""
    if item.get_closest_marker(SMOKE) and not item.stash.get(EXERCISED, 0):
        pytest.fail(
            f"{item.name} is marked smoke but exercised nothing: no step was trained, no example evaluated and none "
            "predicted through the harness. Call t5x_run in it, with until= if it means an earlier stage, or remove "
            "the marker.",
            pytrace=False,
        )


def auxiliary_jobs(item: pytest.Item) -> tuple[Auxiliary, ...]:
    """Returns the jobs that a test's ``auxiliary`` markers request, the closest last; fails it for a wrong marker."""
    jobs = []
    for mark in item.iter_markers("auxiliary"):
        try:
            jobs.append(Auxiliary.of_mark(mark.args, mark.kwargs))
        except ValueError as error:
            fail_at_marker(item, "auxiliary", f"@pytest.mark.auxiliary: {error}")
    return tuple(reversed(jobs))


def check_auxiliary(item: pytest.Item) -> None:
    """Fails a test that is marked ``auxiliary`` and has run no job for a checkpoint."""
    if not isinstance(item, pytest.Function) or item.get_closest_marker("auxiliary") is None:
        return
    if AUXILIARY_RUNS not in item.stash:
        pytest.fail(
            f"{item.name} is marked auxiliary, and no train job ran in it: give a config of training to t5x_run, or "
            "remove the marker",
            pytrace=False,
        )
    if not item.stash[AUXILIARY_RUNS]:
        pytest.fail(
            f"{item.name} is marked auxiliary, and no job ran for a checkpoint: its train job did not pass",
            pytrace=False,
        )


def tpu_resources(item: pytest.Item, otherwise: Mapping[str, Any]) -> TpuResources:
    """Returns the resources that the ``tpu`` markers of a test request; see :meth:`TpuResources.of_marks`.

    Raises:
      ResourcesError: a marker has a mistake in it, or two of the test itself contradict each other.
    """
    if fault := _contradiction(item, TPU):
        raise ResourcesError(fault)
    return TpuResources.of_marks(((mark.args, mark.kwargs) for mark in item.iter_markers(TPU)), otherwise)


def check(item: pytest.Item) -> None:
    """Fails a test without a traceback if one of the harness's markers has a mistake in it."""
    for name in (SMOKE, AOT, "network"):
        mark = item.get_closest_marker(name)
        if mark is not None and (mark.args or mark.kwargs):
            fail_at_marker(item, name, f"use @pytest.mark.{name}, which takes no arguments; not {written(mark)}")
    takes_jobs = "t5x_run" in getattr(item, "fixturenames", ()) or not isinstance(item, pytest.Function)
    if auxiliary_jobs(item) and (hasattr(item, "spec") or not takes_jobs):
        pytest.fail(
            f"{item.name}: @pytest.mark.auxiliary is for tests that call t5x_run, whose train job it gives jobs",
            pytrace=False,
        )
    if (named := slice_name(item)) is not None and (fault := _contradiction(item, "slice") or no_slice(named)):
        fail_at_marker(item, "slice", f"@pytest.mark.slice: {fault}")
    hosts_of(item)
    fault_of(item)
    if item.get_closest_marker(TPU) is not None:
        try:
            tpu_resources(item, {})
        except ResourcesError as error:
            fail_at_marker(item, TPU, f"@pytest.mark.tpu: {error}")


def _contradiction(item: pytest.Item, name: str) -> str:
    """Returns which values of two of a test's own decorators contradict each other; empty if none do."""
    found: dict[str, Any] = {}
    for mark in getattr(getattr(item, "obj", None), "pytestmark", ()):
        given = {**dict(zip(["name"], mark.args, strict=False)), **mark.kwargs} if mark.name == name else {}
        for argument, value in given.items():
            other = found.setdefault(argument, value)
            if other is not value and other != value and not isinstance(value, Mapping):
                return f"{argument}={other!r} and {argument}={value!r} contradict each other: leave one out"
    return ""


def no_slice(name: str) -> str:
    """Returns why there is no TPU slice with a name; empty if there is one."""
    from t5x_harness.slices.slice import SliceError, get_slice

    try:
        get_slice(name)
    except SliceError as error:
        return str(error)
    return ""


def network_allowed(item: pytest.Item) -> bool:
    """Returns whether a test, and the runs that it makes, may reach beyond this machine."""
    allows = item.config.stash[SESSION].settings.options.network == "allow"
    return allows or item.get_closest_marker("network") is not None
