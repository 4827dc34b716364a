"""Reads points of time series and their blobs, and reports usage and sizes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

from google.cloud.aiplatform_v1.types import tensorboard, tensorboard_data, tensorboard_time_series
from google.protobuf.message import Message

from t5x_harness.google.identity import ACCOUNT
from t5x_harness.google.vertex.messages.lists import PageToken, in_order, page_of, page_size
from t5x_harness.google.vertex.messages.matching import matcher
from t5x_harness.google.vertex.resources import aspect_key
from t5x_harness.google.vertex.services import ApiCall, Services
from t5x_harness.google.vertex.tensorboard.blobs import read_blob
from t5x_harness.google.vertex.tensorboard.points import Points, PointsOfSeries, choose
from t5x_harness.google.vertex.tensorboard.runs import TensorboardTimeSeries
from t5x_harness.google.vertex.tensorboard.tensorboards import blob_prefix, tensorboard_of
from t5x_harness.google.vertex.wire.errors import invalid_field

_VIEWS = "views/"
_PAGE, _LARGEST_PAGE = 1000, 10_000
_TimeSeriesData = tensorboard_data.TimeSeriesData.pb()
_SCALAR = tensorboard_time_series.TensorboardTimeSeries.ValueType.SCALAR
_ALL = -1
_POINTS, _MOST_POINTS = 1000, 10_000
_POINTS_OF_OTHERS = 100


def read_usage(call: ApiCall) -> Message:
    name = _get(call.services, call.request.tensorboard).name
    response: Any = call.rpc.response()
    prefix = aspect_key(name, _VIEWS)
    for key in call.services.state.keys(prefix):
        of_month = response.monthly_usage_data[key.removeprefix(prefix)].user_usage_data.add(username=ACCOUNT)
        of_month.view_count = int(call.services.state.get(key) or 0)
    return response


def read_size(points: Points, call: ApiCall) -> Message:
    size = points.size(_get(call.services, call.request.tensorboard).name)
    return call.rpc.response(storage_size_byte=size)


def count_view(services: Services, series: str) -> None:
    """Counts a read of a time series, for its Tensorboard and the month."""
    key = aspect_key(tensorboard_of(series), _VIEWS + time.strftime("%Y%m", time.gmtime()))
    if not services.state.create(key, b"1"):
        services.state.update(key, lambda count: b"%d" % (int(count) + 1))


def _get(services: Services, name: str) -> Any:
    return services.resources.get(name, tensorboard.Tensorboard.pb())


def export_page(call: ApiCall, points: PointsOfSeries) -> tuple[list[Any], str]:
    """Returns one page of points.

    By default, points are in the order of their steps, and a page begins after the last step of the page before.

    Args:
      call: a request with ``filter``, ``order_by``, ``page_size`` and ``page_token``.
      points: the points of the time series.

    Returns:
      The points, and the token of the next page, which is empty for the last page.

    Raises:
      ApiError: INVALID_ARGUMENT: one of the request's fields is not valid.
    """
    request = call.request
    matches = matcher(request.filter, call.services)
    size = page_size(request, _PAGE, _LARGEST_PAGE)
    if request.order_by:
        found = in_order(list(filter(matches, points.all())), request.order_by, newest_first=False)
        return page_of(found, request, size, name=lambda point: str(point.step))
    last = int(PageToken.decode(request.page_token, request).last) if request.page_token else None
    page = list(itertools.islice(filter(matches, points.after(last)), size + 1))
    return page[:size], PageToken(str(page[size - 1].step), 0).encode(request) if len(page) > size else ""


def read(points: Points, call: ApiCall) -> Message:
    """Returns the points of a time series that match a filter, or some of them."""
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
    """Yields blobs of a time series."""
    series = _viewed(call.services, call.request.time_series)
    prefix = blob_prefix(call.services, series.name)
    for blob_id in call.request.blob_ids:
        data = read_blob(call.services, prefix, series.name, blob_id)
        blob = tensorboard_data.TensorboardBlob.pb()(id=blob_id, data=data)
        yield call.rpc.response(blobs=[blob])


def _checked_most(given: int) -> int:
    most = given or _POINTS
    if most != _ALL and not 0 < most <= _MOST_POINTS:
        raise invalid_field("max_data_points", f"{most} is neither from 1 to {_MOST_POINTS}, nor {_ALL} for all")
    return most


def _check_in_tensorboard(request: Any) -> None:
    for number, name in enumerate(request.time_series):
        if tensorboard_of(name) != request.tensorboard:
            raise invalid_field(f"time_series[{number}]", f"{name!r} is not in {request.tensorboard}")


def _viewed(services: Services, name: str) -> Any:
    """Returns a time series, and counts a read of it."""
    series = services.resources.get(name, TensorboardTimeSeries)
    count_view(services, name)
    return series


def _data(series: Any, points: Sequence[Any]) -> Any:
    identifier = series.name.rpartition("/")[2]
    return _TimeSeriesData(tensorboard_time_series_id=identifier, value_type=series.value_type, values=points)


def _selected(call: ApiCall, points: PointsOfSeries, most: int) -> Sequence[Any]:
    """Returns the points that match the request's filter, or some of them."""
    if call.request.filter:
        matches = matcher(call.request.filter, call.services)
        found = [point for point in points.all() if matches(point)]
        return found if most == _ALL else choose(found, most)
    return points.all() if most == _ALL else points.some(most)
