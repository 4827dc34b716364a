"""The standard methods: names, times, etags and masks of resources, and the operations that they return."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from api_calls import NUMBERED, PARENT, Call, Refused
from google.cloud.aiplatform_v1 import types
from google.protobuf import empty_pb2, json_format, struct_pb2

from t5x_harness.google.vertex.faults import VertexFault
from t5x_harness.google.vertex.messages.paths import apply_mask
from t5x_harness.google.vertex.services import aspect_key
from t5x_harness.google.vertex.state import StateError
from t5x_harness.google.vertex.wire.errors import ApiError


@pytest.fixture
def board(call: Call) -> str:
    """Creates a Tensorboard and returns its name."""
    return str(make_board(call).name.partition("/operations/")[0])


def at(board: str, identifier: str = "e-1", **fields: Any) -> dict[str, Any]:
    """Returns the request for an experiment in a Tensorboard."""
    return {"parent": board, "tensorboard_experiment": fields, "tensorboard_experiment_id": identifier}


@pytest.fixture
def experiment(call: Call, board: str) -> Any:
    return call(
        "TensorboardService.CreateTensorboardExperiment", **at(board, display_name="e", labels={"a": "1", "b": "2"})
    )


def _changes(experiment: Any, *paths: str, **fields: Any) -> dict[str, Any]:
    return {"tensorboard_experiment": {"name": experiment.name, **fields}, "update_mask": {"paths": paths}}


def _update(call: Call, experiment: Any, *paths: str, **fields: Any) -> Any:
    return call("TensorboardService.UpdateTensorboardExperiment", **_changes(experiment, *paths, **fields))


def test_a_new_resource_has_name_times_and_etag_and_is_got_by_the_projects_id_and_number(
    call: Call, experiment: Any, board: str
) -> None:
    assert experiment.name == f"{board}/experiments/e-1"
    assert board.startswith(f"{NUMBERED}/tensorboards/")
    assert experiment.create_time == experiment.update_time
    assert experiment.create_time.seconds > 0
    assert experiment.etag
    for name in (experiment.name, experiment.name.replace("projects/100000000000/", "projects/t5x-harness/")):
        assert call("TensorboardService.GetTensorboardExperiment", name=name) == experiment


def test_a_second_one_of_the_same_name_and_one_below_a_parent_that_is_not_there(
    refused: Refused, experiment: Any, board: str
) -> None:
    code, message = refused("TensorboardService.CreateTensorboardExperiment", **at(board))
    assert (code, experiment.name in message) == ("ALREADY_EXISTS", True)
    missing = at(f"{PARENT}/tensorboards/1")
    assert refused("TensorboardService.CreateTensorboardExperiment", **missing)[0] == "NOT_FOUND"


@pytest.mark.parametrize("identifier", ["E", "-e", "a/b", "a#b", "with space", "under_score", "a" * 129])
def test_an_id_that_no_resource_can_have(refused: Refused, board: str, identifier: str) -> None:
    code, message = refused("TensorboardService.CreateTensorboardExperiment", **at(board, identifier))
    assert (code, ".Field: tensorboard_experiment_id; " in message) == ("INVALID_ARGUMENT", True)


@pytest.mark.parametrize(
    "name", [f"{PARENT}/tensorboards/1/runs/2", f"{PARENT}/customJobs/7", PARENT, "", "tensorboards/1"]
)
def test_a_name_of_another_kind(refused: Refused, name: str) -> None:
    code, message = refused("TensorboardService.GetTensorboardExperiment", name=name)
    assert (code, "1.Field: name; " in message) == ("INVALID_ARGUMENT", True)


@pytest.mark.parametrize("paths", [["description"], []])
def test_what_the_mask_names_is_updated_or_else_all_that_is_given(
    call: Call, experiment: Any, paths: list[str]
) -> None:
    given = {"description": "new", **({"display_name": "not this"} if paths else {})}
    changed = _update(call, experiment, *paths, **given)
    assert (changed.description, changed.display_name) == ("new", "e")
    assert changed.create_time == experiment.create_time
    assert changed.update_time.ToNanoseconds() > experiment.update_time.ToNanoseconds()
    assert changed.etag != experiment.etag


def test_what_only_the_service_sets_stays(call: Call, experiment: Any) -> None:
    changed = _update(call, experiment, "*", create_time={"seconds": 1}, display_name="x")
    assert (changed.create_time, changed.name) == (experiment.create_time, experiment.name)
    assert (changed.display_name, dict(changed.labels)) == ("x", {})


def test_a_mask_that_names_no_field(call: Call, refused: Refused, experiment: Any) -> None:
    changes = _changes(experiment, "description", "colour", "labels.a.b", description="new")
    assert refused("TensorboardService.UpdateTensorboardExperiment", **changes) == (
        "INVALID_ARGUMENT",
        "List of found errors:\t1.Field: update_mask; Message: `colour` is not a field of TensorboardExperiment\t"
        "2.Field: update_mask; Message: `labels.a.b` is not a field of TensorboardExperiment\t",
    )
    assert call("TensorboardService.GetTensorboardExperiment", name=experiment.name) == experiment


def test_an_update_for_another_state_of_it_is_aborted(call: Call, refused: Refused, experiment: Any) -> None:
    changed = _update(call, experiment, "description", description="one", etag=experiment.etag)
    changes = _changes(experiment, "description", description="two", etag=experiment.etag)
    assert refused("TensorboardService.UpdateTensorboardExperiment", **changes) == (
        "ABORTED",
        f"Specified TensorboardExperiment `etag`: `{experiment.etag}` does not match server `etag`: `{changed.etag}`",
    )


def test_delete_takes_all_that_is_below_and_belongs_to_it(api: Any, call: Call, experiment: Any, board: str) -> None:
    neighbour = call("TensorboardService.CreateTensorboard", parent=PARENT, tensorboard={"display_name": "n"})
    for name in (board, experiment.name):
        api.services.state.append(aspect_key(name, "points"), b"1")
    call("TensorboardService.DeleteTensorboard", name=board)
    assert api.services.state.keys(f"{board}/") == []
    assert api.services.state.keys(board) == []
    left = call("TensorboardService.ListTensorboards", parent=PARENT).tensorboards
    assert [t.display_name for t in left] == ["n"]
    assert call("Operations.GetOperation", name=neighbour.name) == neighbour
    with pytest.raises(ApiError, match="NOT_FOUND"):
        call("TensorboardService.DeleteTensorboard", name=board)


def _job(**fields: Any) -> Any:
    return json_format.ParseDict(fields, types.CustomJob.pb()())


def _context(**metadata: Any) -> Any:
    return json_format.ParseDict({"metadata": metadata}, types.Context.pb()())


@pytest.mark.parametrize(
    ("paths", "kept", "given", "expected"),
    [
        (["labels"], {"labels": {"a": "1", "b": "2"}}, {"labels": {"c": "3"}}, {"labels": {"c": "3"}}),
        (["labels.b"], {"labels": {"a": "1"}}, {"labels": {"b": "2", "c": "3"}}, {"labels": {"a": "1", "b": "2"}}),
        (["labels.a"], {"labels": {"a": "1", "b": "2"}}, {}, {"labels": {"b": "2"}}),
        (["displayName"], {"displayName": "x"}, {}, {}),
        (
            ["job_spec.service_account"],
            {"jobSpec": {"network": "n", "serviceAccount": "a"}},
            {"jobSpec": {"network": "m", "serviceAccount": "b"}},
            {"jobSpec": {"network": "n", "serviceAccount": "b"}},
        ),
        (
            ["job_spec"],
            {"jobSpec": {"network": "n"}},
            {"jobSpec": {"serviceAccount": "b"}},
            {"jobSpec": {"serviceAccount": "b"}},
        ),
        (["error"], {"error": {"code": 3}}, {}, {}),
        (
            ["job_spec.worker_pool_specs"],
            {"jobSpec": {"workerPoolSpecs": [{"replicaCount": "1"}]}},
            {"jobSpec": {"workerPoolSpecs": [{"replicaCount": "2"}, {"replicaCount": "3"}]}},
            {"jobSpec": {"workerPoolSpecs": [{"replicaCount": "2"}, {"replicaCount": "3"}]}},
        ),
        (["name", "create_time"], {"name": "kept"}, {"name": "given"}, {"name": "kept"}),
        (
            [],
            {"displayName": "x", "labels": {"a": "1"}},
            {"displayName": "y"},
            {"displayName": "y", "labels": {"a": "1"}},
        ),
    ],
)
def test_masks(paths: list[str], kept: Any, given: Any, expected: Any) -> None:
    message = _job(**kept)
    apply_mask(message, _job(**given), paths)
    assert json_format.MessageToDict(message) == expected


@pytest.mark.parametrize(
    ("paths", "given", "expected"),
    [
        (["metadata"], {"loss": 1.0, "new": "x"}, {"loss": 1.0, "kept": True, "deep": {"a": 1.0}, "new": "x"}),
        (["metadata.loss"], {"loss": 1.0, "new": "x"}, {"loss": 1.0, "kept": True, "deep": {"a": 1.0}}),
        (["metadata.loss"], {}, {"kept": True, "deep": {"a": 1.0}}),
        (["metadata.deep.b"], {"deep": {"b": 2.0}}, {"loss": 9.0, "kept": True, "deep": {"a": 1.0, "b": 2.0}}),
    ],
)
def test_masks_of_metadata(paths: list[str], given: Any, expected: Any) -> None:
    context = _context(loss=9.0, kept=True, deep={"a": 1.0})
    apply_mask(context, _context(**given), paths)
    assert isinstance(context.metadata, struct_pb2.Struct)
    assert json_format.MessageToDict(context.metadata) == expected


def test_projects_have_numbers(call: Call) -> None:
    ours = call("Projects.GetProject", name="projects/t5x-harness")
    theirs = call("Projects.GetProject", name="projects/their-project")
    assert (ours.name, ours.project_id) == ("projects/100000000000", "t5x-harness")
    assert theirs.name.removeprefix("projects/").isdigit()
    assert call("Projects.GetProject", name=theirs.name).project_id == "their-project"
    parent = "projects/their-project/locations/us-central1"
    made = call("TensorboardService.CreateTensorboard", parent=parent, tensorboard={"display_name": "t"})
    assert made.name.startswith(f"{theirs.name}/locations/us-central1/tensorboards/")
    assert call("TensorboardService.ListTensorboards", parent=PARENT).tensorboards == []


def test_names_in_what_users_wrote_stay_as_they_are(api: Any) -> None:
    name = f"{PARENT}/customJobs/1"
    job = _job(
        displayName=name,
        labels={"a": name},
        jobSpec={
            "tensorboard": f"{PARENT}/tensorboards/1",
            "workerPoolSpecs": [
                {"containerSpec": {"imageUri": name, "args": [name], "env": [{"name": "A", "value": name}]}}
            ],
        },
    )
    before = _job(**json_format.MessageToDict(job))
    api.services.projects.normalize(job)
    assert job.job_spec.tensorboard == f"{NUMBERED}/tensorboards/1"
    job.job_spec.tensorboard = before.job_spec.tensorboard
    assert job == before


def test_a_fault_of_the_emulation_is_told_as_one(api: Any, refused: Refused, capfd: pytest.CaptureFixture[str]) -> None:
    api.services.state.put(f"{NUMBERED}/tensorboards/1", b"no message\xff")
    code, message = refused("TensorboardService.GetTensorboard", name=f"{PARENT}/tensorboards/1")
    assert (code, "t5x-harness has a bug: " in message) == ("INTERNAL", True)
    assert "Traceback" in capfd.readouterr().err


def test_a_state_that_is_lost_is_told(api: Any, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_key: str) -> bytes:
        raise StateError("the state at redis://there is lost: Connection refused")

    monkeypatch.setattr(api.services.state, "get", lost)
    monkeypatch.setattr(api.services.state, "clear", lambda: lost(""))
    message = "t5x-harness cannot answer: the state at redis://there is lost: Connection refused"
    assert refused("TensorboardService.GetTensorboard", name=f"{PARENT}/tensorboards/1") == ("UNAVAILABLE", message)
    with pytest.raises(ApiError) as reset:
        api.administer("reset", None)
    assert (reset.value.code, reset.value.message) == ("UNAVAILABLE", message)


@pytest.mark.parametrize(
    ("method", "predicts"),
    [
        ("PipelineService.ListPipelineJobs", False),
        ("ModelService.ExportModel", False),
        ("JobService.CreateBatchPredictionJob", True),
        ("EndpointService.CreateEndpoint", True),
    ],
)
def test_what_is_not_emulated_names_what_is(refused: Refused, method: str, predicts: bool) -> None:
    named = {"name": f"{PARENT}/models/1"} if method == "ModelService.ExportModel" else {"parent": PARENT}
    code, message = refused(method, **named)
    told, served, instead = message.partition(". No model is served here: ")
    assert (code, told) == (
        "UNIMPLEMENTED",
        f"t5x-harness does not emulate {method}; of Vertex AI it has CustomJob and HyperparameterTuningJob "
        "(JobService), TrainingPipeline for custom tasks (PipelineService), models as metadata (ModelService), "
        "MetadataService, TensorboardService and operations",
    )
    assert bool(served) == instead.endswith("predict with its own library in a program or a custom job") == predicts


def make_board(call: Call) -> Any:
    """Creates a Tensorboard, and returns the operation."""
    return call("TensorboardService.CreateTensorboard", parent=PARENT, tensorboard={"display_name": "b"})


def test_a_method_whose_result_is_there_at_once(call: Call) -> None:
    made = make_board(call)
    assert made.done
    found = types.Tensorboard.pb()()
    assert made.response.Unpack(found)
    assert (found.display_name, made.name.partition("/operations/")[0]) == ("b", found.name)
    metadata = types.CreateTensorboardOperationMetadata.pb()()
    assert made.metadata.Unpack(metadata)
    assert metadata.generic_metadata.create_time.seconds > 0
    for method in ("Get", "Wait"):
        assert call(f"Operations.{method}Operation", name=made.name) == made


def test_deletes_tell_of_themselves_where_the_resource_was(call: Call) -> None:
    gone = call("TensorboardService.DeleteTensorboard", name=make_board(call).name.partition("/operations/")[0])
    assert gone.name.startswith(f"{NUMBERED}/operations/")
    assert gone.response.Unpack(empty_pb2.Empty())
    assert gone.metadata.Unpack(types.DeleteOperationMetadata.pb()())


def test_cancel_and_delete(call: Call) -> None:
    made = make_board(call)
    call("Operations.CancelOperation", name=made.name)
    assert call("Operations.GetOperation", name=made.name) == made, "it is too late to cancel it"
    call("Operations.DeleteOperation", name=made.name)
    for method in ("Get", "Cancel", "Delete", "Wait"):
        with pytest.raises(ApiError, match="NOT_FOUND"):
            call(f"Operations.{method}Operation", name=made.name)


def test_lists_of_operations_have_pages(call: Call) -> None:
    boards = [make_board(call).name.partition("/operations/")[0] for _ in range(3)]
    names = {call("TensorboardService.DeleteTensorboard", name=name).name for name in boards}
    first = call("Operations.ListOperations", name=PARENT, page_size=2)
    second = call("Operations.ListOperations", name=PARENT, page_size=2, page_token=first.next_page_token)
    assert {o.name for page in (first, second) for o in page.operations} == names
    assert (len(first.operations), second.next_page_token) == (2, "")
    with pytest.raises(ApiError, match="Field: page_size; Message: -1 is negative"):
        call("Operations.ListOperations", name=PARENT, page_size=-1)
    with pytest.raises(ApiError, match="lists operations only without a filter"):
        call("Operations.ListOperations", name=PARENT, filter="done=true")


def test_nobody_waits_for_what_ends(api: Any, call: Call) -> None:
    name = make_board(call).name
    api.services.faults.arm(VertexFault("stall", "Operations.GetOperation", seconds=3600))
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(call, "Operations.GetOperation", name=name)
        while not api.services.faults.report()["faults"][0]["met"]:
            pass
        api.close()
        assert waiting.result().done
