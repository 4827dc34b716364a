"""Metadata stores: their schemas, and the links between their nodes.

The store ``default`` is created when it is first used. Vertex AI publishes the schemas of every store under the
namespaces ``system`` and ``google``, all in version 0.0.1. Listed here are those that its documentation, its SDK and
the artifact types of pipelines mention, with the properties in the documentation.

A link is a membership in a context, a parent or a child, or an event. It is stored at both ends as a part of the
node there, so that either end finds it without a search. The parents of a context are in its message.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import yaml
from google.cloud.aiplatform_v1.types import event as event_types
from google.cloud.aiplatform_v1.types import metadata_schema, metadata_store
from google.protobuf import json_format
from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.names import KINDS, ResourceKind, collection_of, root_of
from t5x_harness.google.vertex.messages.standard import run_standard
from t5x_harness.google.vertex.services import ApiCall, Services, aspect_key
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode, invalid_argument

ARTIFACT, EXECUTION, CONTEXT = KINDS["Artifact"], KINDS["Execution"], KINDS["Context"]


def kind_of(call: ApiCall) -> ResourceKind:
    """Returns the kind of nodes of a method such as ``ListArtifacts``."""
    return next(kind for kind in (ARTIFACT, EXECUTION, CONTEXT) if kind.name in call.rpc.method)


def get_node(services: Services, name: str, kind: ResourceKind) -> Any:
    """Returns a node; raises ApiError if it does not exist, or if the name is not the name of such a node."""
    if name.count("/") != 7 or collection_of(name) != kind.collection or "#" in name:
        shape = f"projects/*/locations/*/metadataStores/*/{kind.collection}/*"
        raise invalid_argument(f"{name!r} is not the name of a {kind.name}: {shape}")
    found = services.resources.find(name, kind.message)
    if found is None:
        message = f"Get{kind.name} is unable to find {kind.field} resource with name: {name}"
        raise ApiError(StatusCode.NOT_FOUND, f"Resource not found.; {message}")
    return found


MEMBERS, CONTEXTS, CHILDREN, EXECUTIONS = "members", "contexts", "children", "executions"
"""The links of a node: members of a context, contexts of a member, child contexts, and executions of an artifact."""

Event = event_types.Event.pb()


def linked(services: Services, node: str, which: str) -> set[str]:
    """Returns the names of the nodes to which a node is linked; ``which`` is :data:`MEMBERS` or another kind."""
    return services.state.members(aspect_key(node, which))


def add_child(services: Services, parent: str, child: str) -> None:
    """Makes a context a child of another. It may already be a child.

    Both keep their etags and times, so that a client that has read a run's context can still write it after the run
    was added to its experiment.
    """
    _change_parents(services, child, lambda parents: parents if parent in parents else [*parents, parent])
    services.state.add(aspect_key(parent, CHILDREN), child)


def remove_child(services: Services, parent: str, child: str) -> None:
    """Removes a context from the children of another. It need not be among them."""
    _change_parents(services, child, lambda parents: [name for name in parents if name != parent])
    services.state.discard(aspect_key(parent, CHILDREN), child)


def add_event(services: Services, event: Any) -> None:
    """Adds an event between an execution and an artifact, if it is the first between the two."""
    services.state.add(aspect_key(event.artifact, EXECUTIONS), event.execution)
    services.state.create(_event_key(event.execution, event.artifact), event.SerializeToString())


def events_of(services: Services, execution: str) -> list[Any]:
    """Returns the events of an execution, in the order of their times."""
    found = services.state.get_all(services.state.keys(_event_key(execution, "")))
    events = [Event.FromString(data) for data in found if data is not None]
    return sorted(events, key=lambda event: event.event_time.ToNanoseconds())


@contextlib.contextmanager
def cutting(services: Services, node: Any) -> Iterator[None]:
    """Removes the far ends of the links of a node that is deleted in the block. The near ends are parts of the node.

    Args:
      services: the services, which have the state.
      node: the node's message.
    """
    name = node.name
    far_ends = [aspect_key(context, MEMBERS) for context in linked(services, name, CONTEXTS)]
    far_ends += [aspect_key(member, CONTEXTS) for member in linked(services, name, MEMBERS)]
    far_ends += [aspect_key(parent, CHILDREN) for parent in getattr(node, "parent_contexts", ())]
    far_ends += [aspect_key(event.artifact, EXECUTIONS) for event in events_of(services, name)]
    children, executions = linked(services, name, CHILDREN), linked(services, name, EXECUTIONS)
    yield
    for key in far_ends:
        services.state.discard(key, name)
    for child in children:
        remove_child(services, name, child)
    for execution in executions:
        services.state.delete(_event_key(execution, name))


def _change_parents(services: Services, child: str, change: Callable[[Sequence[str]], Sequence[str]]) -> None:
    def changed(data: bytes) -> bytes:
        context: Any = CONTEXT.message.FromString(data)
        context.parent_contexts[:] = change(list(context.parent_contexts))
        return bytes(context.SerializeToString())

    services.state.update(child, changed)


def _event_key(execution: str, artifact: str) -> str:
    return aspect_key(execution, f"event/{artifact}")


_VERSION_OF_ALL = "0.0.1"
_COLLECTION = "metadataSchemas"
_Schema = metadata_schema.MetadataSchema.pb()
_ANY_KIND = metadata_schema.MetadataSchema.MetadataSchemaType.METADATA_SCHEMA_TYPE_UNSPECIFIED
_DEFAULT = "/metadataStores/default"
_Store = metadata_store.MetadataStore.pb()
_TITLE = re.compile(r"^[a-z][a-z0-9-_]{2,20}[.][A-Z][a-zA-Z0-9-_]{2,49}$")
_VERSION = re.compile(r"^[0-9]+[.][0-9]+[.][0-9]+$")

_ARTIFACTS = (
    "system.Artifact system.ClassificationMetrics system.Dataset system.HTML system.Markdown system.Metrics "
    "system.Model system.SlicedClassificationMetrics google.BQMLModel google.BQTable "
    "google.ClassificationMetrics google.ExperimentModel google.ForecastingMetrics google.RegressionMetrics "
    "google.UnmanagedContainerModel google.VertexBatchPredictionJob google.VertexDataset google.VertexEndpoint "
    "google.VertexModel google.VertexTensorboardRun"
).split()
_EXECUTIONS = (
    "system.ContainerExecution system.CustomJobExecution system.DagExecution system.ImporterExecution "
    "system.ResolverExecution system.Run"
).split()
_CONTEXTS = "system.Experiment system.ExperimentRun system.Pipeline system.PipelineRun".split()

_PROPERTIES = {
    "system.Dataset": {"container_format": "string", "payload_format": "string"},
    "system.Model": {"framework": "string", "framework_version": "string", "payload_format": "string"},
    "system.Metrics": dict.fromkeys(
        "accuracy precision recall f1score mean_absolute_error mean_squared_error".split(), "number"
    ),
}

_BEFORE_A_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def _system_schemas() -> Iterator[Any]:
    """Yields the schemas of every store, without names."""
    for kind, titles in ((ARTIFACT, _ARTIFACTS), (EXECUTION, _EXECUTIONS), (CONTEXT, _CONTEXTS)):
        for title in titles:
            schema: dict[str, Any] = {"title": title, "type": "object"}
            if properties := _PROPERTIES.get(title):
                schema["properties"] = {name: {"type": of} for name, of in properties.items()}
            text = yaml.safe_dump(schema, sort_keys=False)
            yield _Schema(schema_version=_VERSION_OF_ALL, schema=text, schema_type=_type_of(kind))


def _type_of(kind: ResourceKind) -> int:
    """Returns the type of the schemas for a kind of nodes."""
    return int(metadata_schema.MetadataSchema.MetadataSchemaType[f"{kind.name.upper()}_TYPE"])


def schema_id(title: str, version: str) -> str:
    """Returns the id of a schema, such as ``google-vertex-model-v0-0-1``."""
    namespace, _, name = title.partition(".")
    words = _BEFORE_A_WORD.split(name)
    return "-".join([namespace, *words, "v" + version.replace(".", "-")]).lower().replace("_", "-")


def _missing(schema: Mapping[str, Any], value: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Yields a sentence for each property that a parsed schema requires and a value at a path does not have."""
    for name in schema.get("required") or ():
        if name not in value:
            yield f"{'.'.join((*path, name))!r} is required by the schema."
    for name, inner in (schema.get("properties") or {}).items():
        if isinstance(inner, Mapping) and isinstance(value.get(name), Mapping):
            yield from _missing(inner, value[name], (*path, name))


def add_system_schemas(services: Services, store: str) -> None:
    """Creates the schemas of a new store."""
    for schema in _system_schemas():
        name = schema_id(title_of(schema), schema.schema_version)
        services.resources.create(f"{store}/{_COLLECTION}/{name}", schema)


def conform(services: Services, node: Any, kind: ResourceKind, name: str) -> None:
    """Checks a node against its schema. A node without a version gets the schema's latest one.

    Args:
      services: the services, which have the schemas.
      node: the node's message, whose ``schema_version`` may be set.
      kind: the node's kind.
      name: the name of the node or of its store.

    Raises:
      ApiError: NOT_FOUND: the schema is not registered. INVALID_ARGUMENT: the metadata does not conform to the schema,
        or the schema is for another kind of nodes.
    """
    if not node.schema_title:
        return
    versions = _versions(services, root_of(name), node)
    if versions and not node.schema_version:
        node.schema_version = max(versions, key=lambda version: [int(part) for part in version.split(".")])
    schema = versions.get(node.schema_version)
    if schema is None:
        wanted = " and version ".join(filter(None, (node.schema_title, node.schema_version)))
        registered = f"its versions are {', '.join(versions)}" if versions else "CreateMetadataSchema registers schemas"
        message = f"MetadataSchema with title {wanted} is not registered in {root_of(name)}; {registered}"
        raise ApiError(StatusCode.NOT_FOUND, message)
    if schema.schema_type not in (_type_of(kind), _ANY_KIND):
        raise invalid_argument(f"The schema {node.schema_title!r} is not one for {kind.collection}.")
    read, metadata = parse_schema(schema.schema), json_format.MessageToDict(node.metadata)
    found = list(_missing(read, metadata, ()))
    if read.get("additionalProperties") is False:
        known = read.get("properties") or {}
        message = f"is not a property of the schema, which takes only {', '.join(known)}."
        found = [*(f"{name!r} {message}" for name in metadata if name not in known), *found]
    if found:
        raise invalid_argument(f"The metadata does not match the schema {node.schema_title!r}: {' '.join(found)}")


def _versions(services: Services, store: str, node: Any) -> dict[str, Any]:
    """Returns the schemas with the title in a node, by their versions.

    The service's own schemas are known without the store, which another client may be creating.
    """
    found = dict(_of_the_service().get(node.schema_title, {}))
    if not found or node.schema_version not in ("", *found):
        known = services.resources.list(store, _COLLECTION, _Schema)
        found |= {each.schema_version: each for each in known if title_of(each) == node.schema_title}
    return found


@functools.cache
def _of_the_service() -> Mapping[str, Mapping[str, Any]]:
    return {title_of(schema): {schema.schema_version: schema} for schema in _system_schemas()}


def title_of(schema: Any) -> str:
    """Returns the title of a schema; empty for a blank schema, on which filters are tried."""
    return str(parse_schema(schema.schema).get("title", "")) if schema.schema else ""


@functools.lru_cache(maxsize=256)
def parse_schema(text: str) -> Mapping[str, Any]:
    """Parses a schema's text; raises ApiError (INVALID_ARGUMENT) if it is not a YAML mapping."""
    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise invalid_argument(f"The schema is not YAML: {error}") from None
    if not isinstance(read, Mapping):
        raise invalid_argument("The schema is not a YAML mapping with a title and properties.")
    return read


def create_store(call: ApiCall) -> Message:
    """Creates a store with the schemas of every store."""
    call.request.metadata_store.ClearField("state")
    operation: Any = run_standard(call)
    made = _Store()
    operation.response.Unpack(made)
    add_system_schemas(call.services, made.name)
    return operation


def ensure_default_store(services: Services, store: str) -> None:
    """Creates the store ``default`` if it is missing. Users have to create any other store themselves."""
    if not store.endswith(_DEFAULT) or services.resources.exists(store):
        return
    try:
        services.resources.create(store, _Store())
    except ApiError as error:
        if error.code is not StatusCode.ALREADY_EXISTS:  # another request was faster
            raise
    else:
        add_system_schemas(services, store)


def create_schema(call: ApiCall) -> Message:
    """Registers a schema, whose title and version have to be unique in the store."""
    ensure_default_store(call.services, call.request.parent)
    schema = call.request.metadata_schema
    title = parse_schema(schema.schema).get("title", "")
    if not _TITLE.fullmatch(str(title)):
        message = f"MetadataSchema must include a schema title that satisfies the following regex: {_TITLE.pattern}"
        raise invalid_argument(message)
    if not _VERSION.fullmatch(schema.schema_version):
        message = f"schema_version {schema.schema_version!r} does not satisfy the following regex: {_VERSION.pattern}"
        raise invalid_argument(message)
    known = call.services.resources.list(call.request.parent, _COLLECTION, _Schema)
    if any((title_of(each), each.schema_version) == (title, schema.schema_version) for each in known):
        message = f"MetadataSchema with title {title} and version {schema.schema_version} already exists"
        raise ApiError(StatusCode.ALREADY_EXISTS, message)
    if not call.request.metadata_schema_id:
        call.request.metadata_schema_id = schema_id(title, schema.schema_version)
    return run_standard(call)
