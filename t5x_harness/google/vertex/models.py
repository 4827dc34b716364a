"""Models and their versions: the methods of ModelService, and the registration of models of training pipelines.

A model with all its versions is one value in the state, so that an alias moves in one write.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from google.cloud.aiplatform_v1.types import model_service
from google.protobuf import empty_pb2
from google.protobuf.message import Message

from t5x_harness.buckets.emulated import Store
from t5x_harness.google.vertex.messages.lists import list_page
from t5x_harness.google.vertex.messages.names import ResourceKind, parent_of
from t5x_harness.google.vertex.messages.paths import apply_mask, check_paths, snake_case
from t5x_harness.google.vertex.messages.standard import answered
from t5x_harness.google.vertex.services import ApiCall, FilterFunction, Services
from t5x_harness.google.vertex.wire.errors import (
    ApiError,
    FieldViolation,
    StatusCode,
    failed_precondition,
    invalid_argument,
    invalid_field,
    not_found,
)

# Not one of the standard kinds: a model is uploaded, and kept together with its versions.
_MODEL = ResourceKind("ModelService", "Model")
_Kept = model_service.ListModelVersionsResponse.pb()  # see _Versions
_GIVEN_ID = re.compile(r"[a-z_][a-z0-9_-]{0,62}")
_LONGEST_NAME = 128
_SET_BY_THE_SERVICE = (
    "name version_id version_create_time version_update_time supported_export_formats "
    "supported_deployment_resources_types supported_input_storage_formats supported_output_storage_formats "
    "create_time update_time deployed_models etag data_stats original_model_info metadata_artifact "
    "training_pipeline"
).split()
_DEFAULT = "default"
_ALIAS = re.compile(r"[a-z][a-zA-Z0-9-]{0,126}[a-z0-9]")
_OF_MODELS, _OF_VERSIONS = ("display_name", "description", "labels"), ("version_description", "labels")


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
    uri = model.artifact_uri
    folder = Store(services.settings.root).local(uri) if uri else None
    if uri and (folder is None or not folder.is_dir() or next(folder.iterdir(), None) is None):
        raise failed_precondition(f'There are no files under "{uri}" to copy.')  # the service would copy them
    model.training_pipeline = pipeline
    if parent_model:
        return parent_model, _add_version(services, parent_model, model)
    number = pipeline.rpartition("/")[2][::-1].lstrip("0") or random.randrange(10**18, 9 * 10**18)
    name = f"{parent}/{_MODEL.collection}/{model_id or number}"
    kept: Any = _Kept()
    version = _Versions.begin(kept, name, model, services.clock.now())
    try:
        services.resources.create(name, kept)
    except ApiError as error:
        if error.code is not StatusCode.ALREADY_EXISTS:
            raise
        version = _Versions(services.resources.get(name, _Kept)).trained_by(pipeline)
        if not version:
            message = f"Model with name {name} already exists: name it as parent_model to upload a version of it"
            raise ApiError(StatusCode.ALREADY_EXISTS, message) from None
    return name, version


def _add_version(services: Services, name: str, model: Any) -> str:
    pipeline, now = model.training_pipeline, services.clock.now()
    number = ""

    def add(kept: Any) -> None:
        nonlocal number
        versions = _Versions(kept)
        number = versions.trained_by(pipeline) or versions.add(model, now)

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
    yield from _alias_faults(model.version_aliases)


def get(call: ApiCall) -> Message:
    """Returns the version in a model's name, or the default version."""
    name, version = _split_name(call.request.name)
    return _Versions(call.services.resources.get(name, _Kept)).show(version)


def list_models(call: ApiCall) -> Message:
    """Returns a page of models, each in its default version."""
    kept = call.services.resources.list(call.request.parent, _MODEL.collection, _Kept)
    return list_page(call, _MODEL, [_Versions(each).show() for each in kept], "models")


def list_versions(call: ApiCall) -> Message:
    """Returns a page of the versions of a model."""
    kept = call.services.resources.get(_split_name(call.request.name)[0], _Kept)
    return list_page(call, _MODEL, _Versions(kept).show_all(), "models")


def update(call: ApiCall) -> Message:
    """Changes one version of a model, or the fields that all versions share."""
    given, paths = call.request.model, [snake_case(path) for path in call.request.update_mask.paths]
    if not paths:
        raise invalid_field("update_mask", "it is required")
    check_paths(given.DESCRIPTOR, paths, "update_mask")
    name, version = _split_name(given.name)
    now = call.services.clock.now()
    kept = _change(call.services, name, lambda versions: versions.update(given, paths, version, now))
    return kept.show("" if version == "-" else version)


def merge_aliases(call: ApiCall) -> Message:
    """Adds and removes aliases of a version."""
    name, version = _version_of(call.request)
    changes = list(call.request.version_aliases)
    if faults := list(_alias_faults(change.removeprefix("-") for change in changes)):
        raise ApiError.of_violations(faults)
    return _change(call.services, name, lambda it: it.merge_aliases(version, changes)).show(version)


def delete_version(call: ApiCall) -> Message:
    """Deletes a version that is neither the only nor the default one."""
    name, version = _version_of(call.request)
    _change(call.services, name, lambda versions: versions.delete(version))
    return answered(call, empty_pb2.Empty(), about=name)


def delete(call: ApiCall) -> Message:
    """Deletes a model with all its versions."""
    name, version = _split_name(call.request.name)
    if version:
        raise invalid_field("name", f"{call.request.name!r} is the name of a version: DeleteModelVersion deletes one")
    call.services.resources.delete(name)
    return answered(call, empty_pb2.Empty(), about=parent_of(name))


def _version_of(request: Any) -> tuple[str, str]:
    name, version = _split_name(request.name)
    if not version:
        raise invalid_field("name", f"{request.name!r} names no version: it has to end in one, as in {request.name}@1")
    return name, version


def _change(services: Services, name: str, change: Callable[[_Versions], object]) -> _Versions:
    kept = services.resources.update(name, _Kept, lambda found: change(_Versions(found)))
    return _Versions(kept)


def _model_id(_: Services, model: Any, arguments: Sequence[str]) -> bool:
    """Evaluates ``model=ID``."""
    operator, wanted = arguments
    if operator not in ("=", "!="):
        raise invalid_argument("Invalid filter: model can be compared only with = and !=")
    found = _split_name(model.name)[0].rpartition("/")[2]
    return (found == wanted) == (operator == "=")


FILTERS: Mapping[str, FilterFunction] = {"Model.model": _model_id}


def _split_name(name: str) -> tuple[str, str]:
    """Splits ``…/models/1@2`` into the model's name and the version's id or alias, which may be empty."""
    model, _, version = name.partition("@")
    return model, version


def _alias_faults(aliases: Iterable[str]) -> Iterator[FieldViolation]:
    """Yields the errors in the aliases of a request."""
    for alias in aliases:
        if not _ALIAS.fullmatch(alias):
            message = f"{alias!r} does not match {_ALIAS.pattern}, which no number of a version does"
            yield FieldViolation("version_aliases", message)


class _Versions:
    """Reads and changes the value that stores a model.

    Args:
      kept: a ``ListModelVersionsResponse``. Its first message is the model itself: its name, its times, and the
        fields that all versions share. Each other message is a version. A deleted version leaves an empty message, so
        that its number is not used again.
    """

    def __init__(self, kept: Any) -> None:
        self._kept = kept

    @classmethod
    def begin(cls, kept: Any, name: str, model: Any, now: int) -> str:
        """Fills an empty value with a new model and its first version; returns the version's number.

        The labels become the model's own, so that an update of the model's labels replaces them.
        """
        own = kept.models.add(name=name, display_name=model.display_name, description=model.description)
        own.create_time.FromNanoseconds(now)
        own.labels.update(model.labels)
        model.ClearField("labels")
        versions = cls(kept)
        _stamp(own, now)
        number = versions.add(model, now)
        versions._move((_DEFAULT,), versions._versions()[0])
        return number

    def add(self, model: Any, now: int) -> str:
        """Adds a version and returns its number. Its aliases are removed from other versions."""
        number = str(len(self._kept.models))
        aliases = list(model.version_aliases)
        version = self._kept.models.add()
        version.CopyFrom(model)
        version.name, version.version_id = f"{self._own.name}@{number}", number
        version.ClearField("version_aliases")
        version.version_create_time.FromNanoseconds(now)
        _stamp(version, now)
        self._move(aliases, version)
        return number

    def show(self, version: str = "") -> Any:
        """Returns a version as clients see it.

        Args:
          version: the version's number or an alias; empty for the default version, with the model's name and times.

        Raises:
          ApiError: NOT_FOUND.
        """
        return self._shown(self._find(version or _DEFAULT), versioned=bool(version))

    def show_all(self) -> list[Any]:
        """Returns all versions, oldest first."""
        return [self._shown(version, versioned=True) for version in self._versions()]

    def trained_by(self, pipeline: str) -> str:
        """Returns the number of the version that a training pipeline has registered; empty for none."""
        found = (each.version_id for each in self._versions() if each.training_pipeline == pipeline)
        return next(found, "") if pipeline else ""

    def update(self, given: Any, paths: list[str], version: str, now: int) -> None:
        """Changes the model, or one version of it.

        Args:
          given: the message in the request, perhaps with an etag.
          paths: the paths of the update mask.
          version: the version's number or an alias; empty or ``-`` for the model.
          now: nanoseconds since 1970.

        Raises:
          ApiError: NOT_FOUND; ABORTED, if the etag is not current; FAILED_PRECONDITION, if a field belongs to the
            version but not to the model, or vice versa.
        """
        whole = version in ("", "-")
        target = self._own if whole else self._find(version)
        of_this, of_that = (_OF_MODELS, _OF_VERSIONS) if whole else (_OF_VERSIONS, _OF_MODELS)
        for path in paths:
            field = path.partition(".")[0]
            if field not in (*of_this, *of_that):
                message = f"`{path}` cannot be changed; these can: {', '.join((*_OF_MODELS, _OF_VERSIONS[0]))}"
                raise invalid_field("update_mask", message)
            if field not in of_this:
                mine, name = ("model", self._own.name) if whole else ("version", target.name)
                other = "a version: name it, as in MODEL@1" if whole else "the model: name it without a version"
                raise failed_precondition(f"`{path}` is not a field of the {mine} {name}, but of {other}")
        known = [self._etag(each) for each in (self._versions() if whole else [target])]
        if given.etag and given.etag not in known:
            message = f"Specified Model `etag`: `{given.etag}` does not match server `etag`: `{max(known)}`"
            raise ApiError(StatusCode.ABORTED, message)
        apply_mask(target, given, paths)
        _stamp(target, now)

    def merge_aliases(self, version: str, changes: Iterable[str]) -> None:
        """Adds aliases to a version, which other versions then lose, and removes aliases with a leading ``-``.

        Raises:
          ApiError: NOT_FOUND, or FAILED_PRECONDITION if no default version would be left.
        """
        target, changes = self._find(version), set(changes)
        added = {change for change in changes if not change.startswith("-") and f"-{change}" not in changes}
        removed = {change[1:] for change in changes if change.startswith("-") and change[1:] not in changes}
        if _DEFAULT in removed and _DEFAULT in target.version_aliases:
            message = f"{target.name} is the default version: give another one the alias {_DEFAULT} instead"
            raise failed_precondition(message)
        target.version_aliases[:] = [each for each in target.version_aliases if each not in removed]
        self._move(sorted(added), target)

    def delete(self, version: str) -> None:
        """Deletes a version; raises ApiError (NOT_FOUND, or FAILED_PRECONDITION for the only or the default one)."""
        target = self._find(version)
        if len(self._versions()) == 1:
            raise failed_precondition(f"{target.name} is the only version of its model: delete the model instead")
        if _DEFAULT in target.version_aliases:
            message = f"{target.name} is the default version: give another one the alias {_DEFAULT} first"
            raise failed_precondition(message)
        target.Clear()

    @property
    def _own(self) -> Any:
        return self._kept.models[0]

    def _versions(self) -> list[Any]:
        return [version for version in self._kept.models[1:] if version.name]

    def _find(self, version: str) -> Any:
        for each in self._versions():
            if version == each.version_id or version in each.version_aliases:
                return each
        raise not_found(f"{self._own.name}@{version}")

    def _move(self, aliases: Iterable[str], target: Any) -> None:
        for alias in aliases:
            for each in self._versions():
                if alias in each.version_aliases:
                    each.version_aliases.remove(alias)
            target.version_aliases.append(alias)

    def _shown(self, version: Any, *, versioned: bool) -> Any:
        shown = type(version)()
        shown.CopyFrom(version)
        own = self._own
        if not versioned:
            shown.name = own.name
        shown.display_name, shown.description, shown.etag = own.display_name, own.description, self._etag(version)
        for field in ("create_time", "update_time"):
            getattr(shown, field).CopyFrom(getattr(version, f"version_{field}") if versioned else getattr(own, field))
        for key, value in own.labels.items():
            shown.labels.setdefault(key, value)
        return shown

    def _etag(self, version: Any) -> str:
        """Returns the later of the model's and the version's etags, because clients see changes to either."""
        return str(max(self._own.etag, version.etag))


def _stamp(message: Any, now: int) -> None:
    """Sets the time and the etag of a changed model or version."""
    message.etag = str(now // 1_000)
    getattr(message, "version_update_time" if message.version_id else "update_time").FromNanoseconds(now)
