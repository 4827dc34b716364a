"""Reading data: points of one or several time series, and their blobs; who read how often, and how much there is."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

from google.cloud.aiplatform_v1.types import tensorboard, tensorboard_data, tensorboard_time_series
from google.protobuf.message import Message

from t5x_harness.google.identity import PROJECT
from t5x_harness.google.product import PRODUCT
from t5x_harness.google.vertex.messages.lists import PageToken, in_order, page_bounds, page_size
from t5x_harness.google.vertex.messages.matching import matcher
from t5x_harness.google.vertex.resources import aspect_key
from t5x_harness.google.vertex.services import ApiCall, Services
from t5x_harness.google.vertex.tensorboard.blobs import read_blob
from t5x_harness.google.vertex.tensorboard.points import Points, PointsOfSeries, choose
from t5x_harness.google.vertex.tensorboard.runs import TensorboardTimeSeries
from t5x_harness.google.vertex.tensorboard.tensorboards import blob_prefix, tensorboard_of
from t5x_harness.google.vertex.wire.errors import invalid_field

_VIEWS = "views/"
_USER = f"{PRODUCT}@{PROJECT}.iam.gserviceaccount.com"
"""Whom every client of a session stands for."""


def read_usage(call: ApiCall) -> Message:
    name = _get(call.services, call.request.tensorboard).name
    response: Any = call.rpc.response()
    prefix = aspect_key(name, _VIEWS)
    for key in call.services.state.keys(prefix):
        of_month = response.monthly_usage_data[key.removeprefix(prefix)].user_usage_data.add(username=_USER)
        of_month.view_count = int(call.services.state.get(key) or 0)
    return response


def read_size(points: Points, call: ApiCall) -> Message:
    size = points.size(_get(call.services, call.request.tensorboard).name)
    return call.rpc.response(storage_size_byte=size)


def count_view(services: Services, series: str) -> None:
    """Counts that a time series was read, for its Tensorboard and the month."""
    key = aspect_key(tensorboard_of(series), _VIEWS + time.strftime("%Y%m", time.gmtime()))
    if not services.state.create(key, b"1"):
        services.state.update(key, lambda count: b"%d" % (int(count) + 1))


def _get(services: Services, name: str) -> Any:
    return services.resources.get(name, tensorboard.Tensorboard.pb())


_PAGE, _LARGEST_PAGE = 1000, 10_000


def export_page(call: ApiCall, points: PointsOfSeries) -> tuple[list[Any], str]:
    """Returns one page of points.

    Without an order they are in that of their steps, and a page goes on behind the last step of the one before.

    Args:
      call: its request has ``filter``, ``order_by``, ``page_size`` and ``page_token``.

    Returns:
      The points, and the token of the next page; empty behind the last.

    Raises:
      ApiError: INVALID_ARGUMENT: one of these cannot be read.
    """
    request = call.request
    matches = matcher(request.filter, call.services)
    size = page_size(request, _PAGE, _LARGEST_PAGE)
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


_TimeSeriesData = tensorboard_data.TimeSeriesData.pb()
_SCALAR = tensorboard_time_series.TensorboardTimeSeries.ValueType.SCALAR
_ALL = -1
_POINTS, _MOST_POINTS = 1000, 10_000
_POINTS_OF_OTHERS = 100


def read(points: Points, call: ApiCall) -> Message:
    """Returns the points of a time series that a filter matches, or some of them."""
    request = call.request
    most = _checked_most(request.max_data_points)
    series = _viewed(call.services, request.tensorboard_time_series)
    data = _data(series, _selected(call, points.read(series), most))
    return call.rpc.response(time_series_data=data)


def batch_read(points: Points, call: ApiCall) -> Message:
    """Returns some points of each of several time series."""
    _check_in_tensorboard(call.request)
    response: Any = call.rpc.response()
    for name in call.request.time_series:
        series = _viewed(call.services, name)
        most = _POINTS if series.value_type == _SCALAR else _POINTS_OF_OTHERS
        response.time_series_data.append(_data(series, points.read(series).some(most)))
    return response


def export(points: Points, call: ApiCall) -> Message:
    """Returns a page of the points of a time series."""
    series = _viewed(call.services, call.request.tensorboard_time_series)
    found, token = export_page(call, points.read(series))
    return call.rpc.response(time_series_data_points=found, next_page_token=token)


def read_blobs(call: ApiCall) -> Iterator[Message]:
    """Yields the blobs of a time series that were asked for."""
    series = _viewed(call.services, call.request.time_series)
    prefix = blob_prefix(call.services, series.name)
    for blob_id in call.request.blob_ids:
        data = read_blob(call.services, prefix, series.name, blob_id)
        blob = tensorboard_data.TensorboardBlob.pb()(id=blob_id, data=data)
        yield call.rpc.response(blobs=[blob])


def _checked_most(given: int) -> int:
    most = given or _POINTS
    if most != _ALL and not 0 < most <= _MOST_POINTS:
        message = f"{most} is none of 1 to {_MOST_POINTS}, nor {_ALL} for all"
        raise invalid_field("max_data_points", message)
    return most


def _check_in_tensorboard(request: Any) -> None:
    for number, name in enumerate(request.time_series):
        if tensorboard_of(name) != request.tensorboard:
            message = f"{name!r} is not in {request.tensorboard}"
            raise invalid_field(f"time_series[{number}]", message)


def _viewed(services: Services, name: str) -> Any:
    """Returns a time series, which counts as read by it."""
    series = services.resources.get(name, TensorboardTimeSeries)
    count_view(services, name)
    return series


def _data(series: Any, points: Sequence[Any]) -> Any:
    identifier = series.name.rpartition("/")[2]
    return _TimeSeriesData(tensorboard_time_series_id=identifier, value_type=series.value_type, values=points)


def _selected(call: ApiCall, points: PointsOfSeries, most: int) -> Sequence[Any]:
    """Returns the points that the request's filter matches, or some of them."""
    if call.request.filter:
        matches = matcher(call.request.filter, call.services)
        found = [point for point in points.all() if matches(point)]
        return found if most == _ALL else choose(found, most)
    return points.all() if most == _ALL else points.some(most)
