"""Runs, the time series in them, and their display names, which are unique within a parent."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from google.cloud.aiplatform_v1.types import tensorboard_run, tensorboard_service, tensorboard_time_series
from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.names import parent_of
from t5x_harness.google.vertex.messages.paths import apply_mask
from t5x_harness.google.vertex.messages.standard import run_standard
from t5x_harness.google.vertex.resources import aspect_key
from t5x_harness.google.vertex.services import ApiCall, Services
from t5x_harness.google.vertex.tensorboard.tensorboards import count_run, uncount_runs
from t5x_harness.google.vertex.wire.errors import ApiError, FieldViolation, invalid_argument, invalid_field
from t5x_harness.google.vertex.wire.rpc_table import rpc_table

TensorboardRun = tensorboard_run.TensorboardRun.pb()
TensorboardTimeSeries = tensorboard_time_series.TensorboardTimeSeries.pb()
_ValueType = tensorboard_time_series.TensorboardTimeSeries.ValueType

_MOST_IN_A_BATCH = 1000
_LARGEST_PLUGIN_DATA = 65 * 1024  # bytes


@contextlib.contextmanager
def claimed(services: Services, parent: str, display_name: str, kind: str) -> Iterator[None]:
    """Claims a display name for a child that is created in the block, and releases the name if that fails.

    Args:
      services: have the state.
      parent: the full name of the parent.
      display_name: the display name.
      kind: the kind of the child, such as ``TensorboardRun``.

    Raises:
      ApiError: INVALID_ARGUMENT: the name is empty, or another child has it. Clients look for ``already exist`` with
        this code, and not with ALREADY_EXISTS, and go on with the other child.
    """
    if not display_name:
        raise invalid_field("display_name", f"a {kind} has to have one")
    if not services.state.create(_key(parent, display_name), b""):
        raise invalid_argument(f"{kind} with display name {display_name} already exists in {parent}")
    try:
        yield
    except BaseException:
        release(services, parent, display_name)
        raise


def release(services: Services, parent: str, display_name: str) -> None:
    """Releases a display name."""
    services.state.delete(_key(parent, display_name))


def _key(parent: str, display_name: str) -> str:
    return aspect_key(parent, f"display-name/{display_name}")


def create_run(call: ApiCall) -> Message:
    """Creates a run, whose id the request has to have."""
    if not call.request.tensorboard_run_id:
        raise invalid_field("tensorboard_run_id", "it is required")
    request = call.request
    if call.services.resources.exists(f"{request.parent}/runs/{request.tensorboard_run_id}"):
        return run_standard(call)  # which answers with another code than a display name that is taken
    with claimed(call.services, request.parent, request.tensorboard_run.display_name, "TensorboardRun"):
        made: Any = run_standard(call)
    count_run(call.services, made.name)
    return made


def create_time_series(call: ApiCall) -> Message:
    """Creates a time series of one type of values."""
    given = call.request.tensorboard_time_series
    given.ClearField("metadata")
    found = []
    if given.value_type not in (_ValueType.SCALAR, _ValueType.TENSOR, _ValueType.BLOB_SEQUENCE):
        found.append(
            FieldViolation("tensorboard_time_series.value_type", "it has to be SCALAR, TENSOR or BLOB_SEQUENCE")
        )
    if len(given.plugin_data) > _LARGEST_PLUGIN_DATA:
        message = f"it has {len(given.plugin_data)} bytes; at most 65 KB are allowed"
        found.append(FieldViolation("tensorboard_time_series.plugin_data", message))
    if found:
        raise ApiError.of_violations(found)
    with claimed(call.services, call.request.parent, given.display_name, "TensorboardTimeSeries"):
        return run_standard(call)


def batch_create_runs(call: ApiCall) -> Message:
    """Creates several runs of one experiment, or none."""
    made = _all_or_none(call, create_run, "TensorboardService.CreateTensorboardRun", "runs")
    return call.rpc.response(tensorboard_runs=made)


def batch_create_time_series(call: ApiCall) -> Message:
    """Creates several time series in runs of one experiment, or none."""
    made = _all_or_none(call, create_time_series, "TensorboardService.CreateTensorboardTimeSeries", "time series")
    return call.rpc.response(tensorboard_time_series=made)


def update_run(call: ApiCall) -> Message:
    """Changes a run, perhaps with a new display name."""
    with _renamed(call, call.request.tensorboard_run, TensorboardRun):
        return run_standard(call)


def update_time_series(call: ApiCall) -> Message:
    """Changes a time series, perhaps with a new display name. Its type stays."""
    given = call.request.tensorboard_time_series
    kept: Any = call.services.resources.get(given.name, TensorboardTimeSeries)
    given.value_type = kept.value_type
    given.plugin_name = kept.plugin_name
    given.metadata.CopyFrom(kept.metadata)
    with _renamed(call, given, TensorboardTimeSeries):
        return run_standard(call)


def delete_run(call: ApiCall) -> Message:
    """Deletes a run and its time series."""
    run: Any = call.services.resources.get(call.request.name, TensorboardRun)
    answer = run_standard(call)
    release(call.services, parent_of(run.name), run.display_name)
    uncount_runs(call.services, [run.name])
    return answer


def delete_time_series(call: ApiCall) -> Message:
    """Deletes a time series and its points."""
    series: Any = call.services.resources.get(call.request.name, TensorboardTimeSeries)
    answer = run_standard(call)
    release(call.services, parent_of(series.name), series.display_name)
    return answer


def _all_or_none(call: ApiCall, create: Callable[[ApiCall], Message], method: str, what: str) -> list[Any]:
    """Answers each request of a batch, and undoes all of them if one fails."""
    requests = call.request.requests
    if len(requests) > _MOST_IN_A_BATCH:
        raise invalid_field("requests", f"{len(requests)} {what}; at most {_MOST_IN_A_BATCH} can be created in a batch")
    rpc = rpc_table()[f"{call.rpc.path.rpartition('/')[0]}/{method.partition('.')[2]}"]
    made: list[Any] = []
    try:
        for number, request in enumerate(requests):
            _check_parent(request, call.request.parent, number)
            made.append(create(dataclasses.replace(call, rpc=rpc, request=request)))
    except ApiError:
        for each in made:
            call.services.resources.delete(each.name)
            release(call.services, parent_of(each.name), each.display_name)
            uncount_runs(call.services, [each.name])
        raise
    return made


def _check_parent(request: Any, parent: str, number: int) -> None:
    """Checks that a run's parent is the batch's, and that a time series' parent is a run of the batch's parent."""
    if isinstance(request, tensorboard_service.CreateTensorboardRunRequest.pb()):
        request.parent = request.parent or parent
        right = request.parent == parent
    else:
        right = parent_of(request.parent) == parent
    if not right:
        message = f"{request.parent!r} is not in the parent of the batch, {parent}"
        raise invalid_field(f"requests[{number}].parent", message)


@contextlib.contextmanager
def _renamed(call: ApiCall, given: Any, kind: type[Message]) -> Iterator[None]:
    """Claims the display name that an update in the block sets, and releases the old one afterwards."""
    old: Any = call.services.resources.get(given.name, kind)
    new = kind()
    new.CopyFrom(old)
    apply_mask(new, given, call.request.update_mask.paths)
    if new.display_name == old.display_name:
        yield
        return
    with claimed(call.services, parent_of(old.name), new.display_name, kind.DESCRIPTOR.name):
        yield
    release(call.services, parent_of(old.name), old.display_name)
