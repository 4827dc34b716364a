"""Blobs: objects that clients write to the Tensorboard's bucket, and read through the service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]
Refused = Callable[..., tuple[str, str]]


@pytest.fixture
def stream(api: Any) -> Call:
    """``stream(method, **fields)`` returns the responses of a method that streams them."""
    from t5x_harness.google.vertex.wire.rpc_table import rpc_table

    def ask(method: str, **fields: Any) -> list[Any]:
        rpc = rpc_table().named(method)
        assert rpc is not None
        data = rpc.request(**fields).SerializeToString()
        return [rpc.response.FromString(each) for each in api.stream(rpc.path, data, api.authority.token)]

    return ask


@pytest.fixture
def graph(make_series: Call) -> Any:
    """A time series of blob sequences."""
    return make_series("graph", "BLOB_SEQUENCE")


def folder_of(api: Any, board: Any, series: Any) -> Path:
    """Returns the folder in which the uploader puts a time series' blobs."""
    ids = series.name.split("/")[5::2]
    prefix = Path(api.services.settings.root) / "buckets" / board.blob_storage_path_prefix
    return prefix / "/".join([f"tensorboard-{ids[0]}", *ids[1:]])


def test_blobs_of_the_uploader_are_read_one_by_one(
    api: Any, call: Call, stream: Call, board: Any, graph: Any, write: Call
) -> None:
    folder = folder_of(api, board, graph)
    folder.mkdir(parents=True)
    blobs = {"one": b"\0\xff" * 1000, "two": b"", "host.xplane.pb": b"x"}
    for name, data in blobs.items():
        (folder / name).write_bytes(data)
    write(graph, [{"step": 2, "blobs": {"values": [{"id": name} for name in blobs]}}])
    answers = stream("TensorboardService.ReadTensorboardBlobData", time_series=graph.name, blob_ids=[*blobs])
    assert [{blob.id: blob.data for blob in answer.blobs} for answer in answers] == [{n: d} for n, d in blobs.items()]
    found = call("TensorboardService.GetTensorboardTimeSeries", name=graph.name)
    assert found.metadata.max_blob_sequence_length == 3
    assert found.metadata.max_step == 2


def test_bytes_that_come_with_a_point_are_put_into_the_bucket(
    api: Any, call: Call, stream: Call, board: Any, graph: Any, write: Call
) -> None:
    write(graph, [{"step": 1, "blobs": {"values": [{"data": b"abc"}, {"id": "named", "data": b"def"}]}}])
    ask = {"tensorboard": board.name, "time_series": [graph.name]}
    (data,) = call("TensorboardService.BatchReadTensorboardTimeSeriesData", **ask).time_series_data
    first, second = data.values[0].blobs.values
    assert (first.data, second.id, second.data) == (b"", "named", b"")
    ids = [first.id, second.id]
    answers = stream("TensorboardService.ReadTensorboardBlobData", time_series=graph.name, blob_ids=ids)
    assert [answer.blobs[0].data for answer in answers] == [b"abc", b"def"]
    assert sorted(path.name for path in folder_of(api, board, graph).iterdir()) == sorted(ids)


@pytest.mark.usefixtures("refused")
def test_a_blob_that_is_not_there_is_told_with_its_place(
    stream: Call,
    board: Any,
    graph: Any,
) -> None:
    from t5x_harness.google.vertex.wire.errors import ApiError

    with pytest.raises(ApiError) as caught:
        stream("TensorboardService.ReadTensorboardBlobData", time_series=graph.name, blob_ids=["gone"])
    assert caught.value.code == "NOT_FOUND"
    assert f"there is no gs://{board.blob_storage_path_prefix}/tensorboard-" in caught.value.message


@pytest.mark.parametrize("blob_id", ["../../../secret", "..", ".", "a/b", "", "a\0b"])
def test_an_id_that_leads_elsewhere_is_refused(
    blob_id: str, stream: Call, graph: Any, run: Any, refused: Refused
) -> None:
    from t5x_harness.google.vertex.wire.errors import ApiError

    with pytest.raises(ApiError) as caught:
        stream("TensorboardService.ReadTensorboardBlobData", time_series=graph.name, blob_ids=[blob_id])
    assert caught.value.code == "INVALID_ARGUMENT"
    assert "is not a URI safe key" in caught.value.message
    data = {
        "tensorboard_time_series_id": graph.name.rpartition("/")[2],
        "value_type": "BLOB_SEQUENCE",
        "values": [{"blobs": {"values": [{"id": blob_id}]}}],
    }
    ask = {"tensorboard_run": run.name, "time_series_data": [data]}
    assert "is not a URI safe key" in refused("TensorboardService.WriteTensorboardRunData", **ask)[1]
