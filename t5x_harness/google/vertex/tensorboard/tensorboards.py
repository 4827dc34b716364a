"""Tensorboards with the number of their runs, the experiments in them, and their blobs.

Blobs are objects in the project's bucket, which clients write themselves and read through the service. Those of a time
series are at ``BUCKET/tensorboard-TENSORBOARD/EXPERIMENT/RUN/TIME_SERIES/BLOB_ID``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from google.cloud.aiplatform_v1.types import tensorboard
from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.names import parent_of
from t5x_harness.google.vertex.messages.standard import run_standard
from t5x_harness.google.vertex.resources import aspect_key
from t5x_harness.google.vertex.services import ApiCall, Services
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode, invalid_field

_Tensorboard = tensorboard.Tensorboard.pb()
_RUNS = "runs"


def count_run(services: Services, run: str) -> None:
    """Counts a new run."""
    services.state.add(aspect_key(tensorboard_of(run), _RUNS), run)


def uncount_runs(services: Services, runs: Iterable[str]) -> None:
    """Uncounts deleted runs."""
    for run in runs:
        services.state.discard(aspect_key(tensorboard_of(run), _RUNS), run)


def _run_count(services: Services, tensorboard: str) -> int:
    return len(services.state.members(aspect_key(tensorboard, _RUNS)))


def create(call: ApiCall) -> Message:
    """Creates a Tensorboard with a bucket for its blobs."""
    given = call.request.tensorboard
    if not given.display_name:
        raise invalid_field("tensorboard.display_name", "it is required")
    given.ClearField("run_count")
    given.blob_storage_path_prefix = blob_bucket(call.request.parent)
    make_bucket(call.services, given.blob_storage_path_prefix)
    operation: Any = run_standard(call)
    made = _Tensorboard()
    operation.response.Unpack(made)
    if made.is_default:  # of several that are created at once, the last one stays the default
        _demote(call.services, [each for each in _others(call.services, made.name) if _created(each) < _created(made)])
    return operation


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
        _demote(call.services, _others(call.services, given.name))
    return answer


def create_experiment(call: ApiCall) -> Message:
    """Creates an experiment, whose id the request has to have."""
    if not call.request.tensorboard_experiment_id:
        raise invalid_field("tensorboard_experiment_id", "it is required")
    return run_standard(call)


def delete_experiment(call: ApiCall) -> Message:
    """Deletes an experiment and its runs."""
    name = call.request.name
    runs = call.services.resources.names(name, "runs")
    answer = run_standard(call)
    uncount_runs(call.services, runs)
    return answer


def blob_prefix(services: Services, name: str) -> str:
    """Returns the place of a Tensorboard's blobs.

    Args:
      services: have the Tensorboard.
      name: the full name of the Tensorboard, or of anything in it.
    """
    found: Any = services.resources.get(tensorboard_of(name), _Tensorboard)
    prefix: str = found.blob_storage_path_prefix
    return prefix


def tensorboard_of(name: str) -> str:
    """Returns the full name of the Tensorboard that an experiment, a run or a time series is in."""
    return "/".join(name.split("/")[:6])


def _others(services: Services, name: str) -> list[Any]:
    """Returns the other Tensorboards in the same location."""
    known: list[Any] = services.resources.list(parent_of(name), "tensorboards", _Tensorboard)
    return [each for each in known if each.name != name]


def _demote(services: Services, boards: list[Any]) -> None:
    """Makes these Tensorboards no longer the default."""
    for board in boards:
        if board.is_default:
            services.resources.update(board.name, _Tensorboard, lambda it: it.ClearField("is_default"))


def _created(board: Any) -> int:
    found: int = board.create_time.ToNanoseconds()
    return found


_NAMESPACE = uuid.UUID("6b1f0c1e-52c9-4d0e-9b0a-0d3b6b5c3f5a")


def blob_bucket(location: str) -> str:
    """Returns the bucket for the blobs of all Tensorboards in a location.

    Args:
      location: the location's full name, such as ``projects/1/locations/us-central1``.
    """
    return f"cloud-ai-platform-{uuid.uuid5(_NAMESPACE, location)}"


def make_bucket(services: Services, bucket: str) -> None:
    """Creates a bucket, which may exist."""
    _folder(services, bucket).mkdir(parents=True, exist_ok=True)


def read_blob(services: Services, prefix: str, series: str, blob_id: str) -> bytes:
    """Returns the bytes of a blob.

    Args:
      services: have the object store.
      prefix: the Tensorboard's ``blob_storage_path_prefix``.
      series: the full name of the time series.
      blob_id: the blob's id in a point.

    Raises:
      ApiError: INVALID_ARGUMENT: the id is not valid. NOT_FOUND: there is no such object.
    """
    path = _path(services, prefix, series, blob_id)
    try:
        return path.read_bytes()
    except OSError:
        place = f"gs://{path.relative_to(_folder(services, ''))}"
        raise ApiError(
            StatusCode.NOT_FOUND, f"The blob {blob_id} of {series} was not found: there is no {place}"
        ) from None


def write_blob(services: Services, prefix: str, series: str, blob_id: str, data: bytes) -> None:
    """Writes a blob as a client would; for the arguments see :func:`read_blob`."""
    path = _path(services, prefix, series, blob_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def is_blob_id(blob_id: str) -> bool:
    """Returns whether an id can be the last part of an object's name."""
    return bool(blob_id) and blob_id not in (".", "..") and not set(blob_id) & set("/\0")


def _path(services: Services, prefix: str, series: str, blob_id: str) -> Path:
    if not is_blob_id(blob_id):
        raise invalid_field("blob_ids", f"{blob_id!r} is not a URI safe key")
    tensorboard, experiment, run, time_series = series.split("/")[5::2]
    return _folder(services, prefix) / f"tensorboard-{tensorboard}" / experiment / run / time_series / blob_id


def _folder(services: Services, prefix: str) -> Path:
    """Returns the folder in which the object store keeps a bucket, or a folder of one."""
    return services.settings.root / "buckets" / prefix
