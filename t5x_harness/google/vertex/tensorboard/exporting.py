"""Exporting a time series: pages of points that together cost no more than the series is long."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from t5x_harness.google.vertex.messages.filters import parse_filter
from t5x_harness.google.vertex.messages.matching import Matcher
from t5x_harness.google.vertex.messages.ordering import in_order
from t5x_harness.google.vertex.messages.pages import PageToken, page_bounds
from t5x_harness.google.vertex.services import Call
from t5x_harness.google.vertex.tensorboard.points import PointsOfSeries
from t5x_harness.google.vertex.wire.errors import ApiError, Violation

__all__ = ["export_page"]

_PAGE, _LARGEST_PAGE = 1000, 10_000


def export_page(call: Call, points: PointsOfSeries) -> tuple[list[Any], str]:
    """One page of points.

    Without an order they are in that of their steps, and a page goes on behind the last step of the one before.

    Args:
      call: its request has ``filter``, ``order_by``, ``page_size`` and ``page_token``.
      points: all of the time series.

    Returns:
      The points, and the token of the next page; empty behind the last.

    Raises:
      ApiError: INVALID_ARGUMENT: one of these cannot be read.
    """
    request = call.request
    if request.page_size < 0:
        raise ApiError.of_violations([Violation("page_size", f"{request.page_size} is negative")])
    matches: Callable[[Any], bool] = (
        Matcher(parse_filter(request.filter), call.services) if request.filter else _everything
    )
    size = min(request.page_size or _PAGE, _LARGEST_PAGE)
    if request.order_by:
        found = in_order(list(filter(matches, points.all())), request.order_by, newest_first=False)
        first, end = page_bounds([str(point.step) for point in found], request, size)
        page, more = found[first:end], end < len(found)
    else:
        behind = int(PageToken.decode(request.page_token, request).last) if request.page_token else None
        taken = list(itertools.islice(filter(matches, points.after(behind)), size + 1))
        page, more = taken[:size], len(taken) > size
        end = 0
    return page, PageToken(str(page[-1].step), end).encode(request) if more else ""


def _everything(_: Any) -> bool:
    return True
