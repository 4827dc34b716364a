"""Tensorboards, experiments, runs and time series as resources, and the blobs of time series.

Display names of runs and of time series are unique within their parent. Blobs are objects in the project's bucket,
which clients write themselves and read through the service:
``BUCKET/tensorboard-TENSORBOARD/EXPERIMENT/RUN/SERIES/BLOB``.
"""

import contextlib
import dataclasses
import math
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from google.cloud.aiplatform_v1.types import tensorboard, tensorboard_run, tensorboard_time_series
from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.names import parent_of, root_of
from t5x_harness.google.vertex.messages.paths import apply_mask
from t5x_harness.google.vertex.messages.standard import run_standard
from t5x_harness.google.vertex.services import ApiCall, Services, aspect_key
from t5x_harness.google.vertex.wire.errors import ApiError, FieldViolation, invalid_argument, invalid_field
from t5x_harness.google.vertex.wire.rpc_table import rpc_table

_Tensorboard = tensorboard.Tensorboard.pb()


def create(call: ApiCall) -> Message:
    """Creates a Tensorboard with a bucket for its blobs."""
    given = call.request.tensorboard
    if not given.display_name:
        raise invalid_field("tensorboard.display_name", "it is required")
    given.ClearField("run_count")
    given.blob_storage_path_prefix = f"cloud-ai-platform-{uuid.uuid5(_NAMESPACE, call.request.parent)}"
    buckets = call.services.settings.root / "buckets"
    (buckets / given.blob_storage_path_prefix).mkdir(parents=True, exist_ok=True)
    operation: Any = run_standard(call)
    made = _Tensorboard()
    operation.response.Unpack(made)
    if made.is_default:  # if several are created at once, the last one remains the default
        _demote_others(call.services, made.name, before=made.create_time.ToNanoseconds())
    return operation


def _run_count(services: Services, tensorboard: str) -> int:
    return len(services.resources.names(f"{tensorboard}/experiments/-", "runs"))


def get(call: ApiCall) -> Message:
    """Returns a Tensorboard with the number of its runs."""
    found: Any = run_standard(call)
    found.run_count = _run_count(call.services, found.name)
    return found


def list_tensorboards(call: ApiCall) -> Message:
    """Returns a page of Tensorboards with the numbers of their runs."""
    page: Any = run_standard(call)
    for each in page.tensorboards:
        if each.name:  # a read mask may leave the name out
            each.run_count = _run_count(call.services, each.name)
    return page


def update(call: ApiCall) -> Message:
    """Changes a Tensorboard. A new default replaces the old one."""
    given = call.request.tensorboard
    kept: Any = call.services.resources.get(given.name, _Tensorboard)
    given.blob_storage_path_prefix = kept.blob_storage_path_prefix
    given.ClearField("run_count")
    answer = run_standard(call)
    if call.services.resources.get(given.name, _Tensorboard).is_default:
        _demote_others(call.services, given.name)
    return answer


def create_experiment(call: ApiCall) -> Message:
    """Creates an experiment, whose id the request has to contain."""
    if not call.request.tensorboard_experiment_id:
        raise invalid_field("tensorboard_experiment_id", "it is required")
    return run_standard(call)


def _demote_others(services: Services, name: str, before: float = math.inf) -> None:
    """Makes the other Tensorboards in a location, created before a time in nanoseconds, no longer the default."""
    known: list[Any] = services.resources.list(parent_of(name), "tensorboards", _Tensorboard)
    for board in known:
        if board.name != name and board.is_default and board.create_time.ToNanoseconds() < before:
            services.resources.update(board.name, _Tensorboard, lambda it: it.ClearField("is_default"))


_NAMESPACE = uuid.UUID("6b1f0c1e-52c9-4d0e-9b0a-0d3b6b5c3f5a")


def is_blob_id(blob_id: str) -> bool:
    """Returns whether an id can be the last part of an object's name."""
    return bool(blob_id) and blob_id not in (".", "..") and not set(blob_id) & set("/\0")


def blob_path(services: Services, series: str, blob_id: str) -> Path:
    """Returns the file of the object with a blob.

    Args:
      services: the services, which have the Tensorboard and the object store.
      series: the full name of the time series.
      blob_id: the blob's id in a point.

    Raises:
      ApiError: INVALID_ARGUMENT: the id is not valid.
    """
    if not is_blob_id(blob_id):
        raise invalid_field("blob_ids", f"{blob_id!r} is not a URI safe key")
    board: Any = services.resources.get(root_of(series), _Tensorboard)
    tensorboard, experiment, run, time_series = series.split("/")[5::2]
    folder: Path = services.settings.root / "buckets" / board.blob_storage_path_prefix / f"tensorboard-{tensorboard}"
    return folder / experiment / run / time_series / blob_id


TensorboardRun = tensorboard_run.TensorboardRun.pb()
TensorboardTimeSeries = tensorboard_time_series.TensorboardTimeSeries.pb()
_ValueType = tensorboard_time_series.TensorboardTimeSeries.ValueType

_MOST_IN_A_BATCH = 1000
_LARGEST_PLUGIN_DATA = 65 * 1024  # bytes


@contextlib.contextmanager
def claimed(services: Services, parent: str, display_name: str, kind: str) -> Iterator[None]:
    """Claims a display name for a child that is created in the block, and releases the name if that fails.

    Args:
      services: the services, which have the state.
      parent: the full name of the parent.
      display_name: the display name.
      kind: the kind of the child, such as ``TensorboardRun``.

    Raises:
      ApiError: INVALID_ARGUMENT: the name is empty, or another child has it. Clients look for ``already exist`` in
        an error with this code, and not with ALREADY_EXISTS, and then continue with the other child.
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
    """Creates a run, whose id the request has to contain."""
    if not call.request.tensorboard_run_id:
        raise invalid_field("tensorboard_run_id", "it is required")
    request = call.request
    if call.services.resources.exists(f"{request.parent}/runs/{request.tensorboard_run_id}"):
        return run_standard(call)  # its error has a different code than the one for a display name that is taken
    with claimed(call.services, request.parent, request.tensorboard_run.display_name, "TensorboardRun"):
        return run_standard(call)


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


def update_run(call: ApiCall) -> Message:
    """Changes a run, perhaps with a new display name."""
    with _renamed(call, call.request.tensorboard_run, TensorboardRun):
        return run_standard(call)


def update_time_series(call: ApiCall) -> Message:
    """Changes a time series, perhaps with a new display name. Its type does not change."""
    given = call.request.tensorboard_time_series
    kept: Any = call.services.resources.get(given.name, TensorboardTimeSeries)
    given.value_type = kept.value_type
    given.plugin_name = kept.plugin_name
    given.metadata.CopyFrom(kept.metadata)
    with _renamed(call, given, TensorboardTimeSeries):
        return run_standard(call)


def delete(call: ApiCall) -> Message:
    """Deletes a run with its time series, or a time series with its points."""
    kind = TensorboardRun if call.rpc.method == "DeleteTensorboardRun" else TensorboardTimeSeries
    found: Any = call.services.resources.get(call.request.name, kind)
    answer = run_standard(call)
    release(call.services, parent_of(found.name), found.display_name)
    return answer


def batch_create_runs(call: ApiCall) -> Message:
    """Creates several runs of one experiment, or none."""
    for request in call.request.requests:
        request.parent = request.parent or call.request.parent
    return call.rpc.response(tensorboard_runs=_all_or_none(call, create_run, "Run", "runs", lambda parent: parent))


def batch_create_time_series(call: ApiCall) -> Message:
    """Creates several time series in runs of one experiment, or none."""
    made = _all_or_none(call, create_time_series, "TimeSeries", "time series", parent_of)
    return call.rpc.response(tensorboard_time_series=made)


def _all_or_none(
    call: ApiCall, create: Callable[[ApiCall], Message], kind: str, what: str, holder_of: Callable[[str], str]
) -> list[Any]:
    """Answers each request of a batch, and undoes all of them if one fails. All must be in the batch's parent."""
    requests, parent = call.request.requests, call.request.parent
    if len(requests) > _MOST_IN_A_BATCH:
        raise invalid_field("requests", f"{len(requests)} {what}; at most {_MOST_IN_A_BATCH} can be created in a batch")
    rpc = rpc_table()[f"TensorboardService.CreateTensorboard{kind}"]
    made: list[Any] = []
    try:
        for number, request in enumerate(requests):
            if holder_of(request.parent) != parent:
                message = f"{request.parent!r} is not in the parent of the batch, {parent}"
                raise invalid_field(f"requests[{number}].parent", message)
            made.append(create(dataclasses.replace(call, rpc=rpc, request=request)))
    except ApiError:
        for each in made:
            call.services.ask(f"TensorboardService.DeleteTensorboard{kind}", name=each.name)
        raise
    return made


@contextlib.contextmanager
def _renamed(call: ApiCall, given: Any, kind: type[Message]) -> Iterator[None]:
    """Claims the display name that an update in the block sets, and releases the old one afterward."""
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
