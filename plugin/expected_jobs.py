"""The T5X jobs that a promoting session will send, as far as is known before its tests run."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from t5x_harness.promotion.resources import ResourcesError, TpuResources
from t5x_harness.runs.stages import BEFORE_EXECUTION
from t5x_harness.spec import RunSpec

from . import marks

if TYPE_CHECKING:
    from t5x_harness.google.vertex.settings import ExpectedJobs
    from t5x_harness.vertex.machine import Machine

__all__ = ["expected_jobs", "import_sdk"]


def expected_jobs(
    items: Sequence[pytest.Item], resources: Callable[[pytest.Item], TpuResources], slice_name: str, image: str
) -> ExpectedJobs | None:
    """The jobs of promoted items that run T5X, of those the ones on the first one's machine; None for none.

    Args:
      items: the promoted ones.
      resources: what one asks for.
      slice_name: the slice of those that name none.
      image: where T5X is.
    """
    from t5x_harness.google.vertex.settings import ExpectedJobs

    found = [m for each in _runs(items) if (m := _machine(each, resources, slice_name)) is not None]
    if not found:
        return None
    # Its message would take Google's library, which is not waited for here.
    machine = {name: value for name, value in dataclasses.asdict(found[0]).items() if value}
    return ExpectedJobs(image, machine, found.count(found[0]))


def import_sdk() -> None:
    """Imports what sends jobs, of Google's SDK; why it cannot be imported is told where it is used."""
    with contextlib.suppress(Exception):
        importlib.import_module("google.cloud.aiplatform_v1")


def _runs(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """The tests with ``t5x_run``, and one item of each gin config of which a stage is selected that a job makes."""
    seen: set[RunSpec] = set()
    for item in items:
        if "t5x_run" in getattr(item, "fixturenames", ()):
            yield item
        elif hasattr(item, "spec") and item.name not in BEFORE_EXECUTION and item.spec not in seen:
            seen.add(item.spec)
            yield item


def _machine(item: pytest.Item, resources: Callable[[pytest.Item], TpuResources], slice_name: str) -> Machine | None:
    """What the job of an item's run is to run on; None where it makes none, or where the item has a mistake to tell."""
    from t5x_harness.promotion.order import machine_of

    try:
        asked = resources(item)
        own = item.spec.slice if hasattr(item, "spec") else marks.slice_name(item)
        machine = machine_of(asked, own or slice_name)
    except (ResourcesError, pytest.fail.Exception):
        return None
    return None if asked.ship and not hasattr(item, "spec") else machine
