"""Writes points of time series."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from google.cloud.aiplatform_v1.types import tensorboard_time_series
from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.names import parent_of
from t5x_harness.google.vertex.services import ApiCall, Services
from t5x_harness.google.vertex.tensorboard.blobs import is_blob_id, write_blob
from t5x_harness.google.vertex.tensorboard.points import Points
from t5x_harness.google.vertex.tensorboard.runs import TensorboardTimeSeries
from t5x_harness.google.vertex.tensorboard.tensorboards import blob_prefix
from t5x_harness.google.vertex.wire.errors import ApiError, FieldViolation, invalid_field, not_found

_ValueType = tensorboard_time_series.TensorboardTimeSeries.ValueType
_FIELDS = {_ValueType.SCALAR: "scalar", _ValueType.TENSOR: "tensor", _ValueType.BLOB_SEQUENCE: "blobs"}
_MOST_POINTS = 5000
_ID = re.compile(r"[a-z0-9-]+")


def write_run(points: Points, call: ApiCall) -> Message:
    _write(call.services, points, [call.request])
    return call.rpc.response()


def write_experiment(points: Points, call: ApiCall) -> Message:
    """Writes points of several runs of an experiment."""
    _check_runs(call.request)
    _write(call.services, points, call.request.write_run_data_requests)
    return call.rpc.response()


def _check_runs(request: Any) -> None:
    for number, each in enumerate(request.write_run_data_requests):
        if parent_of(each.tensorboard_run) != request.tensorboard_experiment:
            message = f"{each.tensorboard_run!r} is not a run of {request.tensorboard_experiment}"
            raise ApiError.of_violations(
                [FieldViolation(f"write_run_data_requests[{number}].tensorboard_run", message)]
            )


def _write(services: Services, points: Points, requests: Sequence[Any]) -> None:
    """Writes the data of all requests, or nothing if some of it is not valid."""
    checked = [found for request in requests for found in _checked(services, request)]
    for series, data in checked:
        _move_blobs(services, series, data)
        points.append(series, data.values)
        if not _tell_extremes(services, series, data.values):  # the time series was deleted meanwhile
            points.forget(series)
            raise not_found(series)


def _checked(services: Services, request: Any) -> Iterator[tuple[str, Any]]:
    """Yields the full name of each time series that a request writes, with its data; raises ApiError."""
    points = sum(len(data.values) for data in request.time_series_data)
    if points > _MOST_POINTS:
        raise invalid_field("time_series_data", f"{points} data points; at most {_MOST_POINTS} can be written at once")
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
    """Moves the bytes of blobs out of the points, to where clients write blobs themselves."""
    for point in data.values:
        for blob in point.blobs.values if point.HasField("blobs") else ():
            if blob.data:
                blob.id = blob.id or str(uuid.uuid4())
                write_blob(services, blob_prefix(services, series), series, blob.id, blob.data)
                blob.ClearField("data")


def _tell_extremes(services: Services, series: str, points: Sequence[Any]) -> bool:
    """Updates what a time series reports of its points, without a new etag; returns whether the series exists."""

    def changed(data: bytes) -> bytes:
        kept: Any = TensorboardTimeSeries.FromString(data)
        known = kept.metadata
        for point in points:
            known.max_step = max(known.max_step, point.step)
            if point.wall_time.ToNanoseconds() > known.max_wall_time.ToNanoseconds():
                known.max_wall_time.CopyFrom(point.wall_time)
            if point.HasField("blobs"):
                known.max_blob_sequence_length = max(known.max_blob_sequence_length, len(point.blobs.values))
        found: bytes = kept.SerializeToString()
        return found

    return services.state.update(series, changed) is not None
