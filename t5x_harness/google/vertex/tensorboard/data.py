"""The data of time series: writing and reading points and blobs, and their usage and sizes.

The points of a time series are a list in the state, to which each write appends. For each step, the last one counts.
"""

import random
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from google.cloud.aiplatform_v1.types import tensorboard, tensorboard_data, tensorboard_time_series
from google.protobuf.message import Message

from t5x_harness.google.identity import ACCOUNT
from t5x_harness.google.vertex.messages.filters import matcher
from t5x_harness.google.vertex.messages.lists import in_order, page_of, page_size, page_token, read_token
from t5x_harness.google.vertex.messages.names import parent_of, root_of
from t5x_harness.google.vertex.services import ApiCall, Services, aspect_key
from t5x_harness.google.vertex.tensorboard.tensorboards import TensorboardTimeSeries, blob_path, is_blob_id
from t5x_harness.google.vertex.wire.errors import ApiError, FieldViolation, StatusCode, invalid_field, not_found

_Point = tensorboard_data.TimeSeriesDataPoint.pb()
_TimeSeriesData = tensorboard_data.TimeSeriesData.pb()
_ValueType = tensorboard_time_series.TensorboardTimeSeries.ValueType
_FIELDS = {_ValueType.SCALAR: "scalar", _ValueType.TENSOR: "tensor", _ValueType.BLOB_SEQUENCE: "blobs"}
_MOST_WRITTEN = 5000
_ID = re.compile(r"[a-z0-9-]+")
_VIEWS = "views/"
_PAGE, _LARGEST_PAGE = 1000, 10_000
_ALL = -1
_POINTS, _MOST_POINTS = 1000, 10_000
_POINTS_OF_OTHERS = 100


def write_run(call: ApiCall) -> Message:
    _write(call.services, [call.request])
    return call.rpc.response()


def write_experiment(call: ApiCall) -> Message:
    """Writes points of several runs of an experiment."""
    request = call.request
    for number, each in enumerate(request.write_run_data_requests):
        if parent_of(each.tensorboard_run) != request.tensorboard_experiment:
            message = f"{each.tensorboard_run!r} is not a run of {request.tensorboard_experiment}"
            raise invalid_field(f"write_run_data_requests[{number}].tensorboard_run", message)
    _write(call.services, request.write_run_data_requests)
    return call.rpc.response()


def _write(services: Services, requests: Sequence[Any]) -> None:
    """Writes the data of all requests, or nothing if any of it is not valid."""
    checked = [found for request in requests for found in _checked(services, request)]
    for series, data in checked:
        _move_blobs(services, series, data)
        services.state.append(_key(series), *(point.SerializeToString() for point in data.values))
        if not _tell_extremes(services, series, data.values):  # the time series was deleted in the meantime
            services.state.delete(_key(series))
            raise not_found(series)


def _checked(services: Services, request: Any) -> Iterator[tuple[str, Any]]:
    """Yields the full name of each time series that a request writes, with its data; raises ApiError."""
    points = sum(len(data.values) for data in request.time_series_data)
    if points > _MOST_WRITTEN:
        raise invalid_field("time_series_data", f"{points} data points; at most {_MOST_WRITTEN} can be written at once")
    for number, data in enumerate(request.time_series_data):
        name = f"{request.tensorboard_run}/timeSeries/{data.tensorboard_time_series_id}"
        if not _ID.fullmatch(data.tensorboard_time_series_id):
            raise not_found(name)
        series: Any = services.resources.get(name, TensorboardTimeSeries)
        found = list(_violations(series, data, f"time_series_data[{number}]"))
        if found:
            raise ApiError.of_violations(found)
        yield name, data


def _violations(series: Any, data: Any, where: str) -> Iterator[FieldViolation]:
    wanted = _ValueType(series.value_type).name
    if data.value_type != series.value_type:
        given = _ValueType(data.value_type).name if data.value_type in _FIELDS else "of no type"
        yield FieldViolation(
            f"{where}.value_type", f"it is {given}; {series.display_name} is a time series of {wanted}"
        )
        return
    for number, point in enumerate(data.values):
        field = point.WhichOneof("value")
        if field != _FIELDS[series.value_type]:
            message = f"it has {field or 'nothing'}; {series.display_name} is a time series of {wanted}"
            yield FieldViolation(f"{where}.values[{number}].value", message)
        for blob in point.blobs.values if field == "blobs" else ():
            if not is_blob_id(blob.id) and not (blob.data and not blob.id):
                yield FieldViolation(f"{where}.values[{number}].blobs", f"{blob.id!r} is not a URI safe key")


def _move_blobs(services: Services, series: str, data: Any) -> None:
    """Moves the bytes of blobs from the points to the place where clients write blobs themselves."""
    for point in data.values:
        for blob in point.blobs.values if point.HasField("blobs") else ():
            if blob.data:
                blob.id = blob.id or str(uuid.uuid4())
                path = blob_path(services, series, blob.id)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(blob.data)
                blob.ClearField("data")


def _tell_extremes(services: Services, series: str, points: Sequence[Any]) -> bool:
    """Updates what a time series reports about its points, without a new etag; returns whether the series exists."""

    def changed(data: bytes) -> bytes:
        kept: Any = TensorboardTimeSeries.FromString(data)
        known = kept.metadata
        for point in points:
            known.max_step = max(known.max_step, point.step)
            if point.wall_time.ToNanoseconds() > known.max_wall_time.ToNanoseconds():
                known.max_wall_time.CopyFrom(point.wall_time)
            if point.HasField("blobs"):
                known.max_blob_sequence_length = max(known.max_blob_sequence_length, len(point.blobs.values))
        return bytes(kept.SerializeToString())

    return services.state.update(series, changed) is not None


def read_usage(call: ApiCall) -> Message:
    response: Any = call.rpc.response()
    prefix = aspect_key(_tensorboard(call).name, _VIEWS)
    for key in call.services.state.keys(prefix):
        of_month = response.monthly_usage_data[key.removeprefix(prefix)].user_usage_data.add(username=ACCOUNT)
        of_month.view_count = int(call.services.state.get(key) or 0)
    return response


def read_size(call: ApiCall) -> Message:
    """Returns the size of all points in a Tensorboard, in bytes."""
    state = call.services.state
    keys = [key for key in state.keys(f"{_tensorboard(call).name}/") if key.endswith(_key(""))]
    return call.rpc.response(storage_size_byte=sum(len(data) for key in keys for data in state.read(key)))


def _tensorboard(call: ApiCall) -> Any:
    return call.services.resources.get(call.request.tensorboard, tensorboard.Tensorboard.pb())


def read(call: ApiCall) -> Message:
    """Returns the points of a time series that match a filter, or some of them."""
    most = call.request.max_data_points or _POINTS
    if most != _ALL and not 0 < most <= _MOST_POINTS:
        raise invalid_field("max_data_points", f"{most} is neither from 1 to {_MOST_POINTS}, nor {_ALL} for all")
    series, points = _viewed(call.services, call.request.tensorboard_time_series)
    matches = matcher(call.request.filter, call.services)
    return call.rpc.response(time_series_data=_data(series, list(filter(matches, points)), most))


def batch_read(call: ApiCall) -> Message:
    """Returns some points of each of several time series."""
    for number, name in enumerate(call.request.time_series):
        if root_of(name) != call.request.tensorboard:
            raise invalid_field(f"time_series[{number}]", f"{name!r} is not in {call.request.tensorboard}")
    response: Any = call.rpc.response()
    for name in call.request.time_series:
        series, points = _viewed(call.services, name)
        most = _POINTS if series.value_type == _ValueType.SCALAR else _POINTS_OF_OTHERS
        response.time_series_data.append(_data(series, points, most))
    return response


def export(call: ApiCall) -> Message:
    """Returns a page of the points of a time series that match a filter.

    By default, points are in the order of their steps, and a page begins after the last step of the page before.
    """
    request = call.request
    _, points = _viewed(call.services, request.tensorboard_time_series)
    found = list(filter(matcher(request.filter, call.services), points))
    size = page_size(request, _PAGE, _LARGEST_PAGE)
    if request.order_by:
        found = in_order(found, request.order_by, newest_first=False)
        page, token = page_of(found, request, size, name=lambda point: str(point.step))
    else:
        if request.page_token:
            last = int(read_token(request)[0])
            found = [point for point in found if point.step > last]
        page = found[:size]
        token = page_token(request, str(page[-1].step), 0) if len(found) > size else ""
    return call.rpc.response(time_series_data_points=page, next_page_token=token)


def read_blobs(call: ApiCall) -> Iterator[Message]:
    """Yields blobs of a time series."""
    series, _ = _viewed(call.services, call.request.time_series)
    for blob_id in call.request.blob_ids:
        path = blob_path(call.services, series.name, blob_id)
        try:
            data = path.read_bytes()
        except OSError:
            place = f"gs://{path.relative_to(call.services.settings.root / 'buckets')}"
            message = f"The blob {blob_id} of {series.name} was not found: there is no {place}"
            raise ApiError(StatusCode.NOT_FOUND, message) from None
        blob = tensorboard_data.TensorboardBlob.pb()(id=blob_id, data=data)
        yield call.rpc.response(blobs=[blob])


def _viewed(services: Services, name: str) -> tuple[Any, list[Any]]:
    """Returns a time series with its points in the order of their steps, and counts the read for the month."""
    series = services.resources.get(name, TensorboardTimeSeries)
    key = aspect_key(root_of(name), _VIEWS + time.strftime("%Y%m", time.gmtime()))
    if not services.state.create(key, b"1"):
        services.state.update(key, lambda count: b"%d" % (int(count) + 1))
    by_step = {point.step: point for point in map(_Point.FromString, services.state.read(_key(name)))}
    return series, [by_step[step] for step in sorted(by_step)]


def _data(series: Any, points: list[Any], most: int) -> Any:
    """Returns at most the given number of points of a time series as a message.

    The service chooses at random. Here the choice is the same each time, and always includes the last point, as
    TensorBoard's does.
    """
    if most != _ALL and len(points) > most:
        chosen = random.Random(len(points)).sample(range(len(points) - 1), most - 1)
        points = [*(points[index] for index in sorted(chosen)), points[-1]]
    identifier = series.name.rpartition("/")[2]
    return _TimeSeriesData(tensorboard_time_series_id=identifier, value_type=series.value_type, values=points)


def _key(series: str) -> str:
    """Returns the key of the list with the points of a time series."""
    return aspect_key(series, "points")
