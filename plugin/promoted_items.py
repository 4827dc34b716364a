"""What promotion does to the selected tests: their order, their jobs that are sent early, and what is false of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from t5x_harness.promotion.resources import ResourcesError
from t5x_harness.spec import RunSpec

from . import marks
from .gin_items import StageItem
from .promotion import PROMOTION, Promotion, promotion_of
from .shipped_items import ShippedItem, replaced

__all__ = ["arrange", "check_promotable", "check_sent", "network_guarded"]


def arrange(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts stand-ins in the places of shipped tests; brings the cheap stages of promoted runs before their jobs.

    Args:
      config: pytest's.
      items: the selected tests; changed.

    Raises:
      pytest.UsageError: nothing says where the jobs of promoted tests go, or what configs are to run on.
    """
    promotion = config.stash[PROMOTION]
    if not promotion.active:
        return
    promotion.check(items)
    items[:] = [replaced(item, promotion) for item in items]
    for item in items:
        if isinstance(item, StageItem) and promotion.promotes(item):
            try:
                item.spec = promotion.planned(item, item.spec)
            except ResourcesError as error:
                raise pytest.UsageError(f"[tool.t5x_harness.tpu] and t5x_tpu: {error}") from None
    if not hasattr(config, "workerinput"):  # other workers of pytest-xdist take a part of the tests
        _jobs_after_plans(items, promotion)


def check_promotable(item: pytest.Item) -> None:
    """Fails a promoted test that has nothing to send: run here, its green would be taken for one of a TPU."""
    if promotion_of(item) is None or isinstance(item, StageItem | ShippedItem):
        return
    if "t5x_run" not in getattr(item, "fixturenames", ()):
        pytest.fail(
            f"{item.name} is promoted to a TPU and has nothing to send there: give a config to t5x_run in it, or have "
            "the test itself run there: @pytest.mark.tpu(ship=True)",
            pytrace=False,
        )


def check_sent(item: pytest.Item) -> None:
    """Fails a promoted test that ended without a job."""
    if promotion_of(item) is None or isinstance(item, StageItem | ShippedItem):
        return
    if not item.stash.get(marks.EXERCISED, 0):
        pytest.fail(f"{item.name} is promoted to a TPU, and no job did anything for it: call t5x_run", pytrace=False)


@contextlib.contextmanager
def network_guarded(item: pytest.Item) -> Iterator[None]:
    """Around a smoke test, as :func:`.marks.network_guarded`, unless its job is on the real Vertex AI."""
    promotion = promotion_of(item)
    if promotion is not None and not promotion.settings.emulated:
        yield
        return
    with marks.network_guarded(item):
        yield


def _jobs_after_plans(items: list[pytest.Item], promotion: Promotion) -> None:
    """Brings the stages before the jobs of several runs to the front, so that these jobs are there at once."""
    from t5x_harness.runs.early_jobs import jobs_after_plans

    runs: dict[RunSpec, list[StageItem]] = {}
    for item in items:
        if isinstance(item, StageItem) and promotion.promotes(item):
            runs.setdefault(item.spec, []).append(item)
    arranged, early = jobs_after_plans([*runs.values()], promotion.settings.parallel)
    places = [index for index, item in enumerate(items) if isinstance(item, StageItem) and promotion.promotes(item)]
    for index, item in zip(places, arranged, strict=True):
        items[index] = item
    promotion.plan_early(early)
