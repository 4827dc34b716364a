"""Model Registry: models, their versions and aliases, as the API's reference describes them."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from api_calls import NUMBERED, PARENT, Call
from google.cloud.aiplatform_v1.types import model_service

from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode

SERVED_BY = {"image_uri": "gcr.io/my-project/serve:1"}


def upload(call: Call, display_name: str = "t5", *, parent_model: str = "", model_id: str = "", **fields: Any) -> Any:
    """Returns the response of the operation."""
    model = {"display_name": display_name, "container_spec": SERVED_BY, **fields}
    operation = call(
        "ModelService.UploadModel", parent=PARENT, model=model, parent_model=parent_model, model_id=model_id
    )
    assert operation.done
    response = model_service.UploadModelResponse.pb()()
    assert operation.response.Unpack(response)
    return response


def get(call: Call, name: str) -> Any:
    return call("ModelService.GetModel", name=name)


def aliases(call: Call, name: str) -> dict[str, list[str]]:
    """Returns the aliases of each version."""
    listed = call("ModelService.ListModelVersions", name=name)
    return {model.version_id: sorted(model.version_aliases) for model in listed.models}


def merge(call: Call, version: str, *changes: str) -> Any:
    return call("ModelService.MergeVersionAliases", name=version, version_aliases=changes)


def update(call: Call, name: str, *paths: str, **fields: Any) -> Any:
    return call("ModelService.UpdateModel", model={"name": name, **fields}, update_mask={"paths": paths})


def refused(code: StatusCode, function: Call, *args: Any, **fields: Any) -> str:
    """Returns the message."""
    with pytest.raises(ApiError) as caught:
        function(*args, **fields)
    assert caught.value.code is code
    return caught.value.message


def test_a_new_model_has_one_version_which_is_the_default(call: Call) -> None:
    made = upload(call, labels={"team": "nlp"}, version_description="first")
    assert made.model.startswith(f"{NUMBERED}/models/")
    assert made.model_version_id == "1"
    model = get(call, made.model)
    assert (model.name, model.version_id, list(model.version_aliases)) == (made.model, "1", ["default"])
    assert (model.display_name, dict(model.labels)) == ("t5", {"team": "nlp"})
    assert model.create_time == model.update_time == model.version_create_time
    assert model.etag
    assert get(call, f"{made.model}@1").name == get(call, f"{made.model}@default").name == f"{made.model}@1"
    assert get(call, f"{made.model}@1").version_description == "first"


def test_versions_are_counted_and_a_number_is_never_given_twice(call: Call) -> None:
    name = upload(call, model_id="t5_base").model
    assert name == f"{NUMBERED}/models/t5_base"
    assert [upload(call, parent_model=name).model_version_id for _ in range(2)] == ["2", "3"]
    call("ModelService.DeleteModelVersion", name=f"{name}@3")
    assert upload(call, parent_model=name).model_version_id == "4"
    assert list(aliases(call, name)) == ["1", "2", "4"]
    assert "models/t5_base@3 was not found" in refused(StatusCode.NOT_FOUND, get, call, f"{name}@3")


def test_an_alias_is_one_versions_and_moves(call: Call) -> None:
    name = upload(call, version_aliases=["golden"]).model
    upload(call, parent_model=name, version_aliases=["golden", "default"])
    assert aliases(call, name) == {"1": [], "2": ["default", "golden"]}
    assert get(call, name).version_id == "2"
    assert list(merge(call, f"{name}@1", "golden", "stable").version_aliases) == ["golden", "stable"]
    merge(call, f"{name}@1", "-stable", "both", "-both")
    assert aliases(call, name) == {"1": ["golden"], "2": ["default"]}
    assert get(call, f"{name}@golden").version_id == "1"


def test_there_is_always_a_default_version(call: Call) -> None:
    name = upload(call).model
    only = refused(StatusCode.FAILED_PRECONDITION, call, "ModelService.DeleteModelVersion", name=f"{name}@1")
    assert only == f"{name}@1 is the only version of its model: delete the model instead"
    upload(call, parent_model=name)
    default = refused(StatusCode.FAILED_PRECONDITION, call, "ModelService.DeleteModelVersion", name=f"{name}@1")
    assert default == f"{name}@1 is the default version: give another one the alias default first"
    left = refused(StatusCode.FAILED_PRECONDITION, merge, call, f"{name}@1", "-default")
    assert left == f"{name}@1 is the default version: give another one the alias default instead"
    merge(call, f"{name}@2", "default")
    call("ModelService.DeleteModelVersion", name=f"{name}@1")
    assert aliases(call, name) == {"2": ["default"]}


def test_updates_are_of_the_model_or_of_a_version(call: Call) -> None:
    name = upload(call, labels={"team": "nlp"}).model
    upload(call, parent_model=name, labels={"step": "1000"})
    changed = update(call, name, "display_name", "description", display_name="t5-large", description="large")
    assert (changed.name, changed.display_name) == (name, "t5-large")
    update(call, f"{name}@-", "labels.owner", labels={"owner": "me"})
    second = update(call, f"{name}@2", "versionDescription", version_description="better")
    assert (second.name, second.version_description, second.description) == (f"{name}@2", "better", "large")
    assert dict(second.labels) == {"team": "nlp", "owner": "me", "step": "1000"}
    assert dict(get(call, name).labels) == {"team": "nlp", "owner": "me"}
    for target, field, message in (
        (name, "version_description", f"the model {name}, but of a version: name it, as in MODEL@1"),
        (f"{name}@2", "display_name", f"the version {name}@2, but of the model: name it without a version"),
    ):
        told = refused(StatusCode.FAILED_PRECONDITION, update, call, target, field, **{field: "x"})
        assert told == f"`{field}` is not a field of {message}"
    message = refused(StatusCode.INVALID_ARGUMENT, update, call, name, "artifact_uri", artifact_uri="gs://b/x")
    assert "`artifact_uri` cannot be changed; these can: display_name, description, labels, version" in message
    assert "update_mask; Message: it is required" in refused(StatusCode.INVALID_ARGUMENT, update, call, name)


def test_a_stale_etag_is_refused_and_aliases_leave_it(call: Call) -> None:
    name = upload(call).model
    etag = get(call, name).etag
    merge(call, f"{name}@1", "golden")
    update(call, name, "description", description="one", etag=etag)
    message = refused(StatusCode.ABORTED, update, call, name, "description", description="two", etag=etag)
    assert message == f"Specified Model `etag`: `{etag}` does not match server `etag`: `{get(call, name).etag}`"


def test_lists_have_filters_and_pages(call: Call) -> None:
    names = [upload(call, f"model-{number}", labels={"size": str(number % 2)}).model for number in range(4)]

    def listed(**fields: Any) -> list[str]:
        return [names.index(model.name) for model in call("ModelService.ListModels", parent=PARENT, **fields).models]

    assert listed() == [0, 1, 2, 3]
    assert listed(filter="labels.size=1", order_by="create_time desc") == [3, 1]
    assert listed(filter='displayName="model-2"') == [2]
    identifier = names[1].rpartition("/")[2]
    assert listed(filter=f"model={identifier}") == [1]
    assert listed(filter=f"model!={identifier}", page_size=2) == [0, 2]
    message = refused(StatusCode.INVALID_ARGUMENT, call, "ModelService.ListModels", parent=PARENT, filter="model:1")
    assert message == "Invalid filter: model can be compared only with = and !="
    for _ in range(11):
        upload(call, parent_model=names[0])
    page = call("ModelService.ListModelVersions", name=names[0], page_size=10)
    rest = call("ModelService.ListModelVersions", name=names[0], page_size=10, page_token=page.next_page_token)
    assert [model.version_id for model in (*page.models, *rest.models)] == [str(1 + at) for at in range(12)]
    assert page.models[1].name == f"{names[0]}@2"


def test_a_deleted_model_is_gone_with_its_versions(call: Call) -> None:
    name = upload(call).model
    version = refused(StatusCode.INVALID_ARGUMENT, call, "ModelService.DeleteModel", name=f"{name}@1")
    assert f"'{name}@1' is the name of a version: DeleteModelVersion deletes one" in version
    call("ModelService.DeleteModel", name=name)
    for method in ("GetModel", "ListModelVersions", "DeleteModel"):
        assert f"{name} was not found" in refused(StatusCode.NOT_FOUND, call, f"ModelService.{method}", name=name)
    assert name in refused(StatusCode.NOT_FOUND, upload, call, parent_model=name)


def test_what_is_wrong_with_a_model_is_listed_at_once(call: Call) -> None:
    message = refused(
        StatusCode.INVALID_ARGUMENT,
        upload,
        call,
        "",
        model_id="5t",
        container_spec={},
        artifact_uri="/tmp/model",
        version_aliases=["1"],
    )
    for field, text in {
        "model.display_name": "display_name is required.",
        "model.container_spec.image_uri": "the image of the container that serves it is required.",
        "model.artifact_uri": "'/tmp/model' is not a folder of Cloud Storage, gs://…",
        "model_id": "'5t' does not match [a-z_][a-z0-9_-]{0,62}",
        "version_aliases": "'1' does not match [a-z][a-zA-Z0-9-]{0,126}[a-z0-9], which no number of a version does",
    }.items():
        assert f"Field: {field}; Message: {text}" in message
    upload(call, model_id="t5")
    taken = refused(StatusCode.ALREADY_EXISTS, upload, call, model_id="t5")
    assert taken == (
        f"Model with name {NUMBERED}/models/t5 already exists: name it as parent_model to upload a version of it"
    )
    version = refused(StatusCode.INVALID_ARGUMENT, merge, call, f"{NUMBERED}/models/t5", "golden")
    assert f"names no version: it has to end in one, as in {NUMBERED}/models/t5@1" in version


def test_the_files_of_a_model_have_to_be_there(call: Call, tmp_path: Path) -> None:
    message = refused(StatusCode.FAILED_PRECONDITION, upload, call, artifact_uri="gs://bucket/model")
    assert message == 'There are no files under "gs://bucket/model" to copy.'
    folder = tmp_path / "root/buckets/bucket/model"
    folder.mkdir(parents=True)
    (folder / "weights").write_text("1")
    assert get(call, upload(call, artifact_uri="gs://bucket/model/").model).artifact_uri == "gs://bucket/model/"


def test_two_servers_give_versions_and_aliases_once(two_calls: list[Call]) -> None:
    name = upload(two_calls[0]).model
    numbers: list[str] = []

    def add(call: Call) -> None:
        for _ in range(10):
            made = upload(call, parent_model=name, version_aliases=["newest"])
            numbers.append(made.model_version_id)
            merge(call, f"{name}@{made.model_version_id}", "default")

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(add, two_calls))
    assert sorted(numbers, key=int) == [str(2 + at) for at in range(20)]
    held = [alias for each in aliases(two_calls[0], name).values() for alias in each]
    assert sorted(held) == ["default", "newest"]
