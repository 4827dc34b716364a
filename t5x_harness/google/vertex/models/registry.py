"""The methods of ModelService for models and their versions, and the registration of models of training pipelines."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from google.cloud.aiplatform_v1.types import model_service
from google.protobuf import empty_pb2
from google.protobuf.message import Message

from t5x_harness.buckets.emulated import Store
from t5x_harness.google.vertex.messages.lists import list_page
from t5x_harness.google.vertex.messages.names import ResourceKind, parent_of
from t5x_harness.google.vertex.messages.paths import check_paths, snake_case
from t5x_harness.google.vertex.messages.standard import answered
from t5x_harness.google.vertex.models.versions import Versions, alias_faults, split_name
from t5x_harness.google.vertex.services import ApiCall, FilterFunction, Services
from t5x_harness.google.vertex.wire.errors import (
    ApiError,
    FieldViolation,
    StatusCode,
    failed_precondition,
    invalid_argument,
    invalid_field,
)

# Not one of the standard kinds: a model is uploaded, and kept together with its versions.
_MODEL = ResourceKind("ModelService", "Model")
_Kept = model_service.ListModelVersionsResponse.pb()  # see Versions
_GIVEN_ID = re.compile(r"[a-z_][a-z0-9_-]{0,62}")
_LONGEST_NAME = 128
_SET_BY_THE_SERVICE = (
    "name version_id version_create_time version_update_time supported_export_formats "
    "supported_deployment_resources_types supported_input_storage_formats supported_output_storage_formats "
    "create_time update_time deployed_models etag data_stats original_model_info metadata_artifact "
    "training_pipeline"
).split()


def upload(call: ApiCall) -> Message:
    """Registers a model, or a new version of an existing model."""
    request = call.request
    name, version = register(
        call.services, request.parent, request.model, model_id=request.model_id, parent_model=request.parent_model
    )
    response = model_service.UploadModelResponse.pb()(model=name, model_version_id=version)
    return answered(call, response, about=name)


def register(
    services: Services, parent: str, model: Any, *, model_id: str = "", parent_model: str = "", pipeline: str = ""
) -> tuple[str, str]:
    """Registers a model, or a new version of an existing model.

    Args:
      services: the services, which store the model.
      parent: the location of the model.
      model: the model from a client, which is changed.
      model_id: the id of a new model; empty for a number.
      parent_model: the name of the model for a new version; empty for a new model.
      pipeline: the training pipeline that made the model, which registers it once; empty for none. The id of a new
        model is derived from the pipeline's, so that concurrent registrations are of the same model.

    Returns:
      The model's name and the version's number.

    Raises:
      ApiError: INVALID_ARGUMENT, with everything that is wrong; FAILED_PRECONDITION, if the model has no files;
        NOT_FOUND, for its parent; or ALREADY_EXISTS.
    """
    for field in _SET_BY_THE_SERVICE:
        model.ClearField(field)
    check_model(model, model_id, parent_model)
    _check_files(services, model.artifact_uri)
    model.training_pipeline = pipeline
    if parent_model:
        return parent_model, _add_version(services, parent_model, model)
    number = pipeline.rpartition("/")[2][::-1].lstrip("0") or random.randrange(10**18, 9 * 10**18)
    name = f"{parent}/{_MODEL.collection}/{model_id or number}"
    kept: Any = _Kept()
    version = Versions.begin(kept, name, model, services.clock.now())
    try:
        services.resources.create(name, kept)
    except ApiError as error:
        if error.code is not StatusCode.ALREADY_EXISTS:
            raise
        known = Versions(services.resources.get(name, _Kept)).trained_by(pipeline) if pipeline else ""
        if not known:
            message = f"Model with name {name} already exists: name it as parent_model to upload a version of it"
            raise ApiError(StatusCode.ALREADY_EXISTS, message) from None
        version = known
    return name, version


def _add_version(services: Services, name: str, model: Any) -> str:
    pipeline, now = model.training_pipeline, services.clock.now()
    number = ""

    def add(kept: Any) -> None:
        nonlocal number
        versions = Versions(kept)
        number = (versions.trained_by(pipeline) if pipeline else "") or versions.add(model, now)

    services.resources.update(name, _Kept, add)
    return number


def check_model(model: Any, model_id: str, parent_model: str) -> None:
    """Raises ApiError (INVALID_ARGUMENT), with everything that is wrong, for a model that cannot be registered."""
    if violations := list(_faults(model, model_id, parent_model)):
        raise ApiError.of_violations(violations)


def _faults(model: Any, model_id: str, parent_model: str) -> Iterator[FieldViolation]:
    if not model.display_name:
        yield FieldViolation("model.display_name", "display_name is required.")
    if len(model.display_name) > _LONGEST_NAME:
        yield FieldViolation(
            "model.display_name", f"{len(model.display_name)} characters; at most {_LONGEST_NAME} can be"
        )
    if not model.container_spec.image_uri and not model.HasField("base_model_source"):
        yield FieldViolation("model.container_spec.image_uri", "the image of the container that serves it is required.")
    if model.artifact_uri and not model.artifact_uri.startswith("gs://"):
        yield FieldViolation("model.artifact_uri", f"{model.artifact_uri!r} is not a folder of Cloud Storage, gs://…")
    if model_id and not _GIVEN_ID.fullmatch(model_id):
        yield FieldViolation("model_id", f"{model_id!r} does not match {_GIVEN_ID.pattern}")
    if model_id and parent_model:
        yield FieldViolation("model_id", "a version has its model's: leave out either model_id or parent_model")
    yield from alias_faults(model.version_aliases)


def _check_files(services: Services, uri: str) -> None:
    """Raises ApiError if a folder has no files, because the service would copy them."""
    folder = Store(services.settings.root).local(uri) if uri else None
    if uri and (folder is None or not folder.is_dir() or next(folder.iterdir(), None) is None):
        raise failed_precondition(f'There are no files under "{uri}" to copy.')


def get(call: ApiCall) -> Message:
    """Returns the version in a model's name, or the default version."""
    name, version = split_name(call.request.name)
    shown: Message = Versions(call.services.resources.get(name, _Kept)).show(version)
    return shown


def list_models(call: ApiCall) -> Message:
    """Returns a page of models, each in its default version."""
    kept = call.services.resources.list(call.request.parent, _MODEL.collection, _Kept)
    return list_page(call, _MODEL, [Versions(each).show() for each in kept], "models")


def list_versions(call: ApiCall) -> Message:
    """Returns a page of the versions of a model."""
    name, _ = split_name(call.request.name)
    kept = call.services.resources.get(name, _Kept)
    return list_page(call, _MODEL, Versions(kept).show_all(), "models")


def update(call: ApiCall) -> Message:
    """Changes one version of a model, or the fields that all versions share."""
    given, paths = call.request.model, [snake_case(path) for path in call.request.update_mask.paths]
    if not paths:
        raise invalid_field("update_mask", "it is required")
    check_paths(given.DESCRIPTOR, paths, "update_mask")
    name, version = split_name(given.name)
    now = call.services.clock.now()
    kept = _change(call.services, name, lambda versions: versions.update(given, paths, version, now))
    shown: Message = kept.show("" if version == "-" else version)
    return shown


def merge_aliases(call: ApiCall) -> Message:
    """Adds and removes aliases of a version."""
    name, version = _version_of(call.request)
    changes = list(call.request.version_aliases)
    if faults := list(alias_faults(change.removeprefix("-") for change in changes)):
        raise ApiError.of_violations(faults)
    shown: Message = _change(call.services, name, lambda it: it.merge_aliases(version, changes)).show(version)
    return shown


def delete_version(call: ApiCall) -> Message:
    """Deletes a version that is neither the only nor the default one."""
    name, version = _version_of(call.request)
    _change(call.services, name, lambda versions: versions.delete(version))
    return answered(call, empty_pb2.Empty(), about=name)


def delete(call: ApiCall) -> Message:
    """Deletes a model with all its versions."""
    name, version = split_name(call.request.name)
    if version:
        raise invalid_field("name", f"{call.request.name!r} is the name of a version: DeleteModelVersion deletes one")
    call.services.resources.delete(name)
    return answered(call, empty_pb2.Empty(), about=parent_of(name))


def _version_of(request: Any) -> tuple[str, str]:
    name, version = split_name(request.name)
    if not version:
        raise invalid_field("name", f"{request.name!r} names no version: it has to end in one, as in {request.name}@1")
    return name, version


def _change(services: Services, name: str, change: Callable[[Versions], object]) -> Versions:
    kept = services.resources.update(name, _Kept, lambda found: change(Versions(found)))
    return Versions(kept)


def _model_id(_: Services, model: Any, arguments: Sequence[str]) -> bool:
    """Evaluates ``model=ID``."""
    operator, wanted = arguments
    if operator not in ("=", "!="):
        raise invalid_argument("Invalid filter: model can be compared only with = and !=")
    found = split_name(model.name)[0].rpartition("/")[2]
    return (found == wanted) == (operator == "=")


FILTERS: Mapping[str, FilterFunction] = {"Model.model": _model_id}
