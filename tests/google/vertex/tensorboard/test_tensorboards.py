"""Tensorboards, experiments, runs, time series and blobs as resources."""

from pathlib import Path
from typing import Any

import pytest
from api_calls import PARENT, Call, Refused


def defaults(call: Call) -> list[str]:
    """Returns the display names of the default Tensorboards, with the SDK's filter."""
    page = call("TensorboardService.ListTensorboards", parent=PARENT, filter="is_default=true")
    return [board.display_name for board in page.tensorboards]


def test_a_tensorboard_has_a_bucket_for_its_blobs(call: Call, board: Any, api: Any) -> None:
    found = call("TensorboardService.GetTensorboard", name=board.name)
    assert found == board
    bucket = found.blob_storage_path_prefix
    assert bucket.startswith("cloud-ai-platform-")
    assert (Path(api.services.settings.root) / "buckets" / bucket).is_dir()


def test_one_tensorboard_is_the_default(call: Call, make_board: Call) -> None:
    first = make_board("first", is_default=True)
    assert defaults(call) == ["first"]
    make_board("second", is_default=True)
    assert defaults(call) == ["second"]
    make_board("third")
    assert defaults(call) == ["second"]
    again = {"name": first.name, "is_default": True}
    call("TensorboardService.UpdateTensorboard", tensorboard=again, update_mask={"paths": ["is_default"]})
    assert defaults(call) == ["first"]
    call(
        "TensorboardService.UpdateTensorboard", tensorboard={"name": first.name}, update_mask={"paths": ["is_default"]}
    )
    assert defaults(call) == []


@pytest.mark.usefixtures("run")
def test_an_update_leaves_what_only_the_service_sets(call: Call, board: Any) -> None:
    given = {"name": board.name, "display_name": "new", "description": "d", "run_count": 7}
    given["blob_storage_path_prefix"] = "elsewhere"
    call("TensorboardService.UpdateTensorboard", tensorboard=given, update_mask={"paths": ["*"]})
    found = call("TensorboardService.GetTensorboard", name=board.name)
    assert (found.display_name, found.description, found.run_count) == ("new", "d", 1)
    assert found.blob_storage_path_prefix == board.blob_storage_path_prefix


def test_runs_are_counted(call: Call, board: Any, experiment: Any, make_run: Call) -> None:
    def count() -> list[int]:
        (listed,) = call("TensorboardService.ListTensorboards", parent=PARENT).tensorboards
        return [call("TensorboardService.GetTensorboard", name=board.name).run_count, listed.run_count]

    first = make_run("first")
    make_run("second")
    make_run("third")
    assert count() == [3, 3]
    call("TensorboardService.DeleteTensorboardRun", name=first.name)
    assert count() == [2, 2]
    call("TensorboardService.DeleteTensorboardExperiment", name=experiment.name)
    assert count() == [0, 0]


def test_ids_and_display_names_of_runs_are_their_own(make_run: Call, experiment: Any, refused: Refused) -> None:
    made = make_run("first", "First")
    ask = {"parent": experiment.name, "tensorboard_run_id": "first", "tensorboard_run": {"display_name": "Other"}}
    same_id = refused("TensorboardService.CreateTensorboardRun", **ask)
    assert same_id == ("ALREADY_EXISTS", f"TensorboardRun with name {made.name} already exists")
    ask.update(tensorboard_run_id="second", tensorboard_run={"display_name": "First"})
    # The uploader looks for these words in errors with INVALID_ARGUMENT.
    assert refused("TensorboardService.CreateTensorboardRun", **ask) == (
        "INVALID_ARGUMENT",
        f"TensorboardRun with display name First already exists in {experiment.name}",
    )
    make_run("second", "Second")


def test_a_display_name_is_free_again(call: Call, make_run: Call, make_series: Call, refused: Refused) -> None:
    loss = make_series("loss")
    told = refused(
        "TensorboardService.CreateTensorboardTimeSeries",
        parent=loss.name.partition("/timeSeries")[0],
        tensorboard_time_series={"display_name": "loss", "value_type": "SCALAR"},
    )
    assert told[0] == "INVALID_ARGUMENT"
    assert "TensorboardTimeSeries with display name loss already exist" in told[1]
    renamed = {"name": loss.name, "display_name": "old loss"}
    call("TensorboardService.UpdateTensorboardTimeSeries", tensorboard_time_series=renamed)
    make_series("loss")
    taken = refused(
        "TensorboardService.UpdateTensorboardTimeSeries",
        tensorboard_time_series={"name": loss.name, "display_name": "loss"},
    )
    assert "already exist" in taken[1]
    call("TensorboardService.DeleteTensorboardTimeSeries", name=loss.name)
    make_series("old loss")
    first = make_run("first", "First")
    call("TensorboardService.DeleteTensorboardRun", name=first.name)
    make_run("second", "First")


@pytest.mark.parametrize(
    ("kind", "parent", "field", "given"),
    [
        ("Tensorboard", PARENT, "tensorboard.display_name", {"tensorboard": {}}),
        ("TensorboardExperiment", None, "tensorboard_experiment_id", {"tensorboard_experiment": {}}),
        ("TensorboardRun", None, "tensorboard_run_id", {"tensorboard_run": {"display_name": "x"}}),
    ],
)
def test_tensorboards_need_a_name_and_experiments_and_runs_an_id(
    kind: str, parent: str | None, field: str, given: dict[str, Any], experiment: Any, refused: Refused
) -> None:
    parent = parent or (experiment.name if kind == "TensorboardRun" else experiment.name.partition("/experiments")[0])
    told = refused(f"TensorboardService.Create{kind}", parent=parent, **given)
    assert told == ("INVALID_ARGUMENT", f"List of found errors:\t1.Field: {field}; Message: it is required\t")


def test_a_time_series_has_a_type_that_stays(call: Call, make_series: Call, run: Any, refused: Refused) -> None:
    ask = {"parent": run.name, "tensorboard_time_series": {"display_name": "loss", "plugin_data": b"x" * 70_000}}
    assert refused("TensorboardService.CreateTensorboardTimeSeries", **ask) == (
        "INVALID_ARGUMENT",
        "List of found errors:\t"
        "1.Field: tensorboard_time_series.value_type; Message: it has to be SCALAR, TENSOR or BLOB_SEQUENCE\t"
        "2.Field: tensorboard_time_series.plugin_data; Message: it has 70000 bytes; at most 65 KB are allowed\t",
    )
    loss = make_series("loss", plugin_name="scalars", plugin_data=b"\x01")
    changed = {"name": loss.name, "value_type": "TENSOR", "plugin_name": "text", "description": "d"}
    updated = call("TensorboardService.UpdateTensorboardTimeSeries", tensorboard_time_series=changed)
    assert (updated.value_type, updated.plugin_name, updated.description) == (loss.value_type, "scalars", "d")
    assert updated.plugin_data == b"\x01"


def test_a_batch_of_runs_is_made_as_a_whole(call: Call, experiment: Any, board: Any, refused: Refused) -> None:
    def requests(*names: str) -> list[dict[str, Any]]:
        return [{"tensorboard_run_id": name, "tensorboard_run": {"display_name": name}} for name in names]

    ask = {"parent": experiment.name, "requests": requests("a", "b")}
    made = call("TensorboardService.BatchCreateTensorboardRuns", **ask).tensorboard_runs
    assert [run.display_name for run in made] == ["a", "b"]
    ask["requests"] = requests("c", "d", "b")
    assert refused("TensorboardService.BatchCreateTensorboardRuns", **ask)[0] == "ALREADY_EXISTS"
    ask["requests"] = requests("c", "d")
    call("TensorboardService.BatchCreateTensorboardRuns", **ask)
    assert call("TensorboardService.GetTensorboard", name=board.name).run_count == 4
    other = f"{board.name}/experiments/other"
    ask["requests"] = [{**requests("e")[0], "parent": other}]
    told = refused("TensorboardService.BatchCreateTensorboardRuns", **ask)
    assert told[1] == (
        f"List of found errors:\t1.Field: requests[0].parent; Message: {other!r} is not in the parent of the batch, "
        f"{experiment.name}\t"
    )
    ask["requests"] = requests(*(f"n-{number}" for number in range(1001)))
    told = refused("TensorboardService.BatchCreateTensorboardRuns", **ask)
    assert "1.Field: requests; Message: 1001 runs; at most 1000 can be created in a batch" in told[1]


def test_a_batch_of_time_series_spans_runs(call: Call, experiment: Any, make_run: Call, refused: Refused) -> None:
    first, second = make_run("first"), make_run("second")

    def requests(name: str) -> list[dict[str, Any]]:
        given = {"display_name": name, "value_type": "SCALAR"}
        return [{"parent": run.name, "tensorboard_time_series": given} for run in (first, second)]

    ask = {"parent": experiment.name, "requests": requests("loss")}
    made = call("TensorboardService.BatchCreateTensorboardTimeSeries", **ask).tensorboard_time_series
    assert [series.name.rpartition("/timeSeries")[0] for series in made] == [first.name, second.name]
    ask["requests"] = [*requests("accuracy"), requests("loss")[0]]
    assert "already exist" in refused("TensorboardService.BatchCreateTensorboardTimeSeries", **ask)[1]
    found = call("TensorboardService.ListTensorboardTimeSeries", parent=first.name).tensorboard_time_series
    assert [series.display_name for series in found] == ["loss"]


@pytest.fixture
def graph(make_series: Call) -> Any:
    """Creates a time series of blob sequences."""
    return make_series("graph", "BLOB_SEQUENCE")


def folder_of(api: Any, board: Any, series: Any) -> Path:
    """Returns the folder in which the uploader puts a time series' blobs."""
    ids = series.name.split("/")[5::2]
    prefix = Path(api.services.settings.root) / "buckets" / board.blob_storage_path_prefix
    return prefix / "/".join([f"tensorboard-{ids[0]}", *ids[1:]])


def test_blobs_of_the_uploader_are_read_one_by_one(api: Any, call: Call, board: Any, graph: Any, write: Call) -> None:
    folder = folder_of(api, board, graph)
    folder.mkdir(parents=True)
    blobs = {"one": b"\0\xff" * 1000, "two": b"", "host.xplane.pb": b"x"}
    for name, data in blobs.items():
        (folder / name).write_bytes(data)
    write(graph, [{"step": 2, "blobs": {"values": [{"id": name} for name in blobs]}}])
    answers = call("TensorboardService.ReadTensorboardBlobData", time_series=graph.name, blob_ids=[*blobs])
    assert [{blob.id: blob.data for blob in answer.blobs} for answer in answers] == [{n: d} for n, d in blobs.items()]
    found = call("TensorboardService.GetTensorboardTimeSeries", name=graph.name)
    assert found.metadata.max_blob_sequence_length == 3
    assert found.metadata.max_step == 2


def test_bytes_that_come_with_a_point_are_put_into_the_bucket(
    api: Any, call: Call, board: Any, graph: Any, write: Call
) -> None:
    write(graph, [{"step": 1, "blobs": {"values": [{"data": b"abc"}, {"id": "named", "data": b"def"}]}}])
    ask = {"tensorboard": board.name, "time_series": [graph.name]}
    (data,) = call("TensorboardService.BatchReadTensorboardTimeSeriesData", **ask).time_series_data
    first, second = data.values[0].blobs.values
    assert (first.data, second.id, second.data) == (b"", "named", b"")
    ids = [first.id, second.id]
    answers = call("TensorboardService.ReadTensorboardBlobData", time_series=graph.name, blob_ids=ids)
    assert [answer.blobs[0].data for answer in answers] == [b"abc", b"def"]
    assert sorted(path.name for path in folder_of(api, board, graph).iterdir()) == sorted(ids)


def test_a_blob_that_is_not_there_is_told_with_its_place(refused: Refused, board: Any, graph: Any) -> None:
    ask = {"time_series": graph.name, "blob_ids": ["gone"]}
    code, message = refused("TensorboardService.ReadTensorboardBlobData", **ask)
    assert code == "NOT_FOUND"
    assert f"there is no gs://{board.blob_storage_path_prefix}/tensorboard-" in message


@pytest.mark.parametrize("blob_id", ["../../../secret", "..", ".", "a/b", "", "a\0b"])
def test_an_id_that_leads_elsewhere_is_refused(blob_id: str, graph: Any, run: Any, refused: Refused) -> None:
    ask = {"time_series": graph.name, "blob_ids": [blob_id]}
    code, message = refused("TensorboardService.ReadTensorboardBlobData", **ask)
    assert (code, "is not a URI safe key" in message) == ("INVALID_ARGUMENT", True)
    values = [{"blobs": {"values": [{"id": blob_id}]}}]
    series = graph.name.rpartition("/")[2]
    data = {"tensorboard_time_series_id": series, "value_type": "BLOB_SEQUENCE", "values": values}
    ask = {"tensorboard_run": run.name, "time_series_data": [data]}
    assert "is not a URI safe key" in refused("TensorboardService.WriteTensorboardRunData", **ask)[1]
