"""The standard methods: names, times, etags and masks of resources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")

from google.protobuf import json_format, struct_pb2

from t5x_harness.google.vertex.messages.paths import apply_mask
from t5x_harness.google.vertex.state import StateError
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode
from t5x_harness.google.vertex.wire.rpc_table import rpc_table

PARENT = "projects/t5x-harness/locations/us-central1"
NUMBERED = "projects/100000000000/locations/us-central1"
Ask = Callable[..., Any]


@pytest.fixture
def board(call: Ask) -> str:
    """The name of a Tensorboard."""
    made = call("TensorboardService.CreateTensorboard", parent=PARENT, tensorboard={"display_name": "b"})
    return str(made.name.partition("/operations/")[0])


@pytest.fixture
def experiment(call: Ask, board: str) -> Any:
    return call(
        "TensorboardService.CreateTensorboardExperiment",
        parent=board,
        tensorboard_experiment={"display_name": "e", "labels": {"a": "1", "b": "2"}},
        tensorboard_experiment_id="e-1",
    )


def _update(call: Ask, experiment: Any, *paths: str, **fields: Any) -> Any:
    return call(
        "TensorboardService.UpdateTensorboardExperiment",
        tensorboard_experiment={"name": experiment.name, **fields},
        update_mask={"paths": paths},
    )


def test_a_new_resource_has_name_times_and_etag(experiment: Any, board: str) -> None:
    assert experiment.name == f"{board}/experiments/e-1"
    assert board.startswith(f"{NUMBERED}/tensorboards/")
    assert experiment.create_time == experiment.update_time
    assert experiment.create_time.seconds > 0
    assert experiment.etag


def test_it_is_got_by_the_projects_id_and_by_its_number(call: Ask, experiment: Any) -> None:
    for name in (experiment.name, experiment.name.replace("projects/100000000000/", "projects/t5x-harness/")):
        assert call("TensorboardService.GetTensorboardExperiment", name=name) == experiment


def test_a_second_one_of_the_same_name(call: Ask, experiment: Any, board: str) -> None:
    with pytest.raises(ApiError) as caught:
        call(
            "TensorboardService.CreateTensorboardExperiment",
            parent=board,
            tensorboard_experiment={},
            tensorboard_experiment_id="e-1",
        )
    assert caught.value.code is StatusCode.ALREADY_EXISTS
    assert experiment.name in caught.value.message


@pytest.mark.parametrize("identifier", ["E", "-e", "a/b", "a#b", "a" * 129])
def test_an_id_that_no_resource_can_have(call: Ask, board: str, identifier: str) -> None:
    with pytest.raises(ApiError) as caught:
        call(
            "TensorboardService.CreateTensorboardExperiment",
            parent=board,
            tensorboard_experiment={},
            tensorboard_experiment_id=identifier,
        )
    assert caught.value.code is StatusCode.INVALID_ARGUMENT
    assert caught.value.violations[0].field == "tensorboard_experiment_id"


def test_below_a_parent_that_is_not_there(call: Ask) -> None:
    with pytest.raises(ApiError) as caught:
        call(
            "TensorboardService.CreateTensorboardExperiment",
            parent=f"{PARENT}/tensorboards/1",
            tensorboard_experiment={},
            tensorboard_experiment_id="e",
        )
    assert caught.value.code is StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    "name", [f"{PARENT}/tensorboards/1/runs/2", f"{PARENT}/customJobs/7", PARENT, "", "tensorboards/1"]
)
def test_a_name_of_another_kind(call: Ask, name: str) -> None:
    with pytest.raises(ApiError) as caught:
        call("TensorboardService.GetTensorboardExperiment", name=name)
    assert caught.value.code is StatusCode.INVALID_ARGUMENT
    assert caught.value.violations[0].field == "name"


def test_only_what_the_mask_names_is_updated(call: Ask, experiment: Any) -> None:
    changed = _update(call, experiment, "description", description="new", display_name="not this")
    assert (changed.description, changed.display_name) == ("new", "e")
    assert changed.create_time == experiment.create_time
    assert changed.update_time.ToNanoseconds() > experiment.update_time.ToNanoseconds()
    assert changed.etag != experiment.etag


def test_without_a_mask_all_that_is_given_is_updated(call: Ask, experiment: Any) -> None:
    changed = _update(call, experiment, description="new")
    assert (changed.description, changed.display_name) == ("new", "e")


def test_what_only_the_service_sets_stays(call: Ask, experiment: Any) -> None:
    changed = _update(call, experiment, "*", create_time={"seconds": 1}, display_name="x")
    assert (changed.create_time, changed.name) == (experiment.create_time, experiment.name)
    assert (changed.display_name, dict(changed.labels)) == ("x", {})


def test_a_mask_that_names_no_field(call: Ask, experiment: Any) -> None:
    with pytest.raises(ApiError) as caught:
        _update(call, experiment, "description", "colour", "labels.a.b", description="new")
    assert caught.value.code is StatusCode.INVALID_ARGUMENT
    assert caught.value.message == (
        "List of found errors:\t1.Field: update_mask; Message: `colour` is not a field of TensorboardExperiment\t"
        "2.Field: update_mask; Message: `labels.a.b` is not a field of TensorboardExperiment\t"
    )
    kept = call("TensorboardService.GetTensorboardExperiment", name=experiment.name)
    assert kept == experiment


def test_an_update_for_another_state_of_it_is_aborted(call: Ask, experiment: Any) -> None:
    changed = _update(call, experiment, "description", description="one", etag=experiment.etag)
    with pytest.raises(ApiError) as caught:
        _update(call, experiment, "description", description="two", etag=experiment.etag)
    assert caught.value.code is StatusCode.ABORTED
    assert caught.value.message == (
        f"Specified TensorboardExperiment `etag`: `{experiment.etag}` does not match server `etag`: `{changed.etag}`"
    )


def test_delete_takes_all_that_is_below_and_belongs_to_it(api: Any, call: Ask, experiment: Any, board: str) -> None:
    from t5x_harness.google.vertex.services import aspect_key

    neighbour = call("TensorboardService.CreateTensorboard", parent=PARENT, tensorboard={"display_name": "n"})
    api.services.state.append(aspect_key(experiment.name, "points"), b"1")
    call("TensorboardService.DeleteTensorboard", name=board)
    assert api.services.state.keys(f"{board}/") == []
    assert api.services.state.keys(board) == []
    left = call("TensorboardService.ListTensorboards", parent=PARENT).tensorboards
    assert [t.display_name for t in left] == ["n"]
    assert call("Operations.GetOperation", name=neighbour.name) == neighbour
    with pytest.raises(ApiError, match="NOT_FOUND"):
        call("TensorboardService.DeleteTensorboard", name=board)


def _job(**fields: Any) -> Any:
    rpc = rpc_table().named("JobService.GetCustomJob")
    assert rpc is not None
    return json_format.ParseDict(fields, rpc.response())


def _context(**metadata: Any) -> Any:
    rpc = rpc_table().named("MetadataService.GetContext")
    assert rpc is not None
    context = rpc.response()
    context.metadata.update(metadata)
    return context


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


def test_projects_have_numbers(call: Ask) -> None:
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


def test_a_fault_of_the_emulation_is_told_as_one(api: Any, call: Ask, capfd: pytest.CaptureFixture[str]) -> None:
    api.services.state.put(f"{NUMBERED}/tensorboards/1", b"no message\xff")
    with pytest.raises(ApiError) as caught:
        call("TensorboardService.GetTensorboard", name=f"{PARENT}/tensorboards/1")
    assert caught.value.code is StatusCode.INTERNAL
    assert "t5x-harness has a bug: " in caught.value.message
    assert "Traceback" in capfd.readouterr().err


def test_a_state_that_is_lost_is_told(api: Any, call: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_key: str) -> bytes:
        raise StateError("the state at redis://there is lost: Connection refused")

    monkeypatch.setattr(api.services.state, "get", lost)
    monkeypatch.setattr(api.services.state, "clear", lambda: lost(""))
    with pytest.raises(ApiError) as caught:
        call("TensorboardService.GetTensorboard", name=f"{PARENT}/tensorboards/1")
    with pytest.raises(ApiError) as reset:
        api.administer("reset", None)
    assert caught.value.code is reset.value.code is StatusCode.UNAVAILABLE
    assert caught.value.message == reset.value.message
    assert caught.value.message == ("t5x-harness cannot answer: the state at redis://there is lost: Connection refused")


def test_what_is_not_emulated_names_what_is(call: Ask) -> None:
    for method in ("PipelineService.ListPipelineJobs", "JobService.CreateBatchPredictionJob"):
        with pytest.raises(ApiError) as caught:
            call(method, parent=PARENT)
        assert caught.value.code is StatusCode.UNIMPLEMENTED
        assert caught.value.message.partition(". No model is served here: ")[0] == (
            f"t5x-harness does not emulate {method}; of Vertex AI it has CustomJob and HyperparameterTuningJob "
            "(JobService), TrainingPipeline for custom tasks (PipelineService), models as metadata (ModelService), "
            "MetadataService, TensorboardService and operations"
        )
