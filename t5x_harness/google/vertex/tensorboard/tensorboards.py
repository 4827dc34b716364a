"""Tensorboards, and the experiments in them."""

from __future__ import annotations

from typing import Any

from google.cloud.aiplatform_v1.types import tensorboard
from google.protobuf.message import Message

from t5x_harness.google.vertex.api.errors import ApiError, Violation
from t5x_harness.google.vertex.api.handlers import Call, Handlers
from t5x_harness.google.vertex.api.names import parent_of
from t5x_harness.google.vertex.api.service import Api
from t5x_harness.google.vertex.tensorboard import run_counts
from t5x_harness.google.vertex.tensorboard.blobs import blob_bucket, make_bucket

__all__ = ["HANDLERS", "blob_prefix", "tensorboard_of"]

HANDLERS = Handlers()

_Tensorboard = tensorboard.Tensorboard.pb()


@HANDLERS.on("TensorboardService.CreateTensorboard")
def create(call: Call) -> Message:
    """Makes a Tensorboard with a bucket for its blobs."""
    given = call.request.tensorboard
    if not given.display_name:
        raise ApiError.of_violations([Violation("tensorboard.display_name", "it is required")])
    given.ClearField("run_count")
    given.blob_storage_path_prefix = blob_bucket(call.request.parent)
    make_bucket(call.api, given.blob_storage_path_prefix)
    operation: Any = call.standard()
    made = _Tensorboard()
    operation.response.Unpack(made)
    if made.is_default:  # of several that are made at once, the last is left
        _demote(call.api, [other for other in _others(call.api, made.name) if _created(other) < _created(made)])
    answer: Message = operation
    return answer


@HANDLERS.on("TensorboardService.GetTensorboard")
def get(call: Call) -> Message:
    """A Tensorboard with the number of its runs."""
    found: Any = call.standard()
    found.run_count = run_counts.count(call.api, found.name)
    answer: Message = found
    return answer


@HANDLERS.on("TensorboardService.ListTensorboards")
def list_tensorboards(call: Call) -> Message:
    """Tensorboards with the numbers of their runs."""
    page: Any = call.standard()
    for each in page.tensorboards:
        if each.name:  # a read mask may leave it out
            each.run_count = run_counts.count(call.api, each.name)
    answer: Message = page
    return answer


@HANDLERS.on("TensorboardService.UpdateTensorboard")
def update(call: Call) -> Message:
    """Changes a Tensorboard. One that becomes the default takes the place of the one that was."""
    given = call.request.tensorboard
    kept: Any = call.api.resources.get(given.name, _Tensorboard)
    given.blob_storage_path_prefix = kept.blob_storage_path_prefix
    given.ClearField("run_count")
    answer = call.standard()
    if call.api.resources.get(given.name, _Tensorboard).is_default:
        _demote(call.api, _others(call.api, given.name))
    return answer


@HANDLERS.on("TensorboardService.CreateTensorboardExperiment")
def create_experiment(call: Call) -> Message:
    """Makes an experiment, under the id that the request has to have."""
    if not call.request.tensorboard_experiment_id:
        raise ApiError.of_violations([Violation("tensorboard_experiment_id", "it is required")])
    return call.standard()


@HANDLERS.on("TensorboardService.DeleteTensorboardExperiment")
def delete_experiment(call: Call) -> Message:
    """Deletes an experiment with its runs."""
    name = call.request.name
    runs = call.api.resources.names(name, "runs")
    answer = call.standard()
    run_counts.forget(call.api, parent_of(name), runs)
    return answer


def blob_prefix(api: Api, name: str) -> str:
    """Where the blobs of a Tensorboard are.

    Args:
      api: that has it.
      name: of the Tensorboard, or of anything in it.
    """
    found: Any = api.resources.get(tensorboard_of(name), _Tensorboard)
    prefix: str = found.blob_storage_path_prefix
    return prefix


def tensorboard_of(name: str) -> str:
    """The full name of the Tensorboard that an experiment, a run or a time series is in."""
    return "/".join(name.split("/")[:6])


def _others(api: Api, name: str) -> list[Any]:
    """The other Tensorboards of the same project in the same location."""
    known: list[Any] = api.resources.list(parent_of(name), "tensorboards", _Tensorboard)
    return [each for each in known if each.name != name]


def _demote(api: Api, boards: list[Any]) -> None:
    """Leaves none of them the default."""
    for board in boards:
        if board.is_default:
            api.resources.update(board.name, _Tensorboard, lambda it: it.ClearField("is_default"))


def _created(board: Any) -> int:
    nanoseconds: int = board.create_time.ToNanoseconds()
    return nanoseconds
