"""Metadata stores and their schemas: those of every store, what they say, and whether a node is as its schema says.

The store called ``default`` is made when it is first used. Vertex AI publishes the schemas of every store under the
namespaces ``system`` and ``google``, all in version 0.0.1. Named here are those that its documentation, its SDK and
the artifact types of pipelines name; properties are those that the documentation lists.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from google.cloud.aiplatform_v1.types import metadata_schema, metadata_store
from google.protobuf import json_format
from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.standard import run_standard
from t5x_harness.google.vertex.metadata.kinds import NodeKind, store_of
from t5x_harness.google.vertex.services import ApiCall, Services
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode

VERSION = "0.0.1"

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


def system_schemas() -> Iterator[metadata_schema.MetadataSchema]:
    """Yields them, without names."""
    kinds = metadata_schema.MetadataSchema.MetadataSchemaType
    for kind, titles in (
        (kinds.ARTIFACT_TYPE, _ARTIFACTS),
        (kinds.EXECUTION_TYPE, _EXECUTIONS),
        (kinds.CONTEXT_TYPE, _CONTEXTS),
    ):
        for title in titles:
            yield metadata_schema.MetadataSchema(schema_version=VERSION, schema=_text(title), schema_type=kind)


def schema_id(title: str, version: str) -> str:
    """Returns the id under which a store has a schema: ``google-vertex-model-v0-0-1``."""
    namespace, _, name = title.partition(".")
    words = _BEFORE_A_WORD.split(name)
    return "-".join([namespace, *words, "v" + version.replace(".", "-")]).lower().replace("_", "-")


def _text(title: str) -> str:
    lines = [f"title: {title}", "type: object"]
    if properties := _PROPERTIES.get(title):
        lines.append("properties:")
        for name, kind in properties.items():
            lines += [f"  {name}:", f"    type: {kind}"]
    return "\n".join(lines) + "\n"


def violations(schema: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yields what is wrong with metadata, one sentence for each property.

    Args:
      schema: as the YAML of a MetadataSchema reads.
      metadata: of a node, as JSON has it.
    """
    properties = schema.get("properties") or {}
    if schema.get("additionalProperties") is False:
        for name in metadata:
            if name not in properties:
                yield f"{name!r} is none of the schema's properties ({', '.join(properties)}), and it takes no others."
    yield from _missing(schema, metadata, ())


def _missing(schema: Mapping[str, Any], value: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for name in schema.get("required") or ():
        if name not in value:
            yield f"{'.'.join((*path, name))!r} is required by the schema."
    for name, inner in (schema.get("properties") or {}).items():
        if isinstance(inner, Mapping) and isinstance(value.get(name), Mapping):
            yield from _missing(inner, value[name], (*path, name))


_COLLECTION = "metadataSchemas"
_Schema = metadata_schema.MetadataSchema.pb()
_ANY_KIND = metadata_schema.MetadataSchema.MetadataSchemaType.METADATA_SCHEMA_TYPE_UNSPECIFIED


def add_system_schemas(services: Services, store: str) -> None:
    """Registers the schemas that a new store has."""
    for wrapped in system_schemas():
        schema = metadata_schema.MetadataSchema.pb(wrapped)
        name = schema_id(parse_schema(schema.schema)["title"], schema.schema_version)
        services.resources.create(f"{store}/{_COLLECTION}/{name}", schema)


def conform(services: Services, node: Any, kind: NodeKind, name: str) -> None:
    """Holds a node to its schema, and gives it the schema's latest version if it names none.

    Args:
      node: the message; its ``schema_version`` may be set.
      name: of the node or of its store.

    Raises:
      ApiError: NOT_FOUND for a schema that is not registered; INVALID_ARGUMENT for metadata that is not as it says, or
        for a schema of another kind of nodes.
    """
    if not node.schema_title:
        return
    versions = _versions(services, store_of(name), node)
    if versions and not node.schema_version:
        node.schema_version = max(versions, key=lambda version: [int(part) for part in version.split(".")])
    schema = versions.get(node.schema_version)
    if schema is None:
        wanted = " and version ".join(filter(None, (node.schema_title, node.schema_version)))
        registered = f"its versions are {', '.join(versions)}" if versions else "CreateMetadataSchema registers schemas"
        message = f"MetadataSchema with title {wanted} is not registered in {store_of(name)}; {registered}"
        raise ApiError(StatusCode.NOT_FOUND, message)
    if schema.schema_type not in (kind.schema_type, _ANY_KIND):
        message = f"The schema {node.schema_title!r} is not one for {kind.collection}."
        raise ApiError(StatusCode.INVALID_ARGUMENT, message)
    found = list(violations(parse_schema(schema.schema), json_format.MessageToDict(node.metadata)))
    if found:
        message = f"The metadata does not match the schema {node.schema_title!r}: {' '.join(found)}"
        raise ApiError(StatusCode.INVALID_ARGUMENT, message)


def schemas_of(services: Services, store: str) -> list[Any]:
    return services.resources.list(store, _COLLECTION, _Schema)


def _versions(services: Services, store: str, node: Any) -> dict[str, Any]:
    """Returns the schemas with the title that a node names, by their versions.

    Those of the service are known without the store, which somebody may just be making.
    """
    found = dict(_of_the_service().get(node.schema_title, {}))
    if not found or node.schema_version not in ("", *found):
        same = [schema for schema in schemas_of(services, store) if title_of(schema) == node.schema_title]
        found |= {schema.schema_version: schema for schema in same}
    return found


@functools.cache
def _of_the_service() -> Mapping[str, Mapping[str, Any]]:
    schemas = map(metadata_schema.MetadataSchema.pb, system_schemas())
    return {title_of(schema): {schema.schema_version: schema} for schema in schemas}


def title_of(schema: Any) -> str:
    """Returns the title in a schema's text; empty for a schema without a text, which filters are tried on."""
    return str(parse_schema(schema.schema).get("title", "")) if schema.schema else ""


@functools.lru_cache(maxsize=256)
def parse_schema(text: str) -> Mapping[str, Any]:
    """Reads a schema's text; raises ApiError (INVALID_ARGUMENT) if it is not a YAML mapping."""
    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ApiError(StatusCode.INVALID_ARGUMENT, f"The schema is not YAML: {error}") from None
    if not isinstance(read, Mapping):
        raise ApiError(StatusCode.INVALID_ARGUMENT, "The schema is not a YAML mapping with a title and properties.")
    return read


_DEFAULT = "/metadataStores/default"
_Store = metadata_store.MetadataStore.pb()


def create_store(call: ApiCall) -> Message:
    """Makes a store with the schemas that every store has."""
    call.request.metadata_store.ClearField("state")
    operation: Any = run_standard(call)
    made = _Store()
    operation.response.Unpack(made)
    add_system_schemas(call.services, made.name)
    return operation


def ensure_default_store(services: Services, store: str) -> None:
    """Makes a store that is not there, if it is called ``default``; any other has to be made by its user."""
    if not store.endswith(_DEFAULT) or services.resources.exists(store):
        return
    try:
        services.resources.create(store, _Store())
    except ApiError as error:
        if error.code is not StatusCode.ALREADY_EXISTS:  # somebody else met it first
            raise
    else:
        add_system_schemas(services, store)


_TITLE = re.compile(r"^[a-z][a-z0-9-_]{2,20}[.][A-Z][a-zA-Z0-9-_]{2,49}$")
_VERSION = re.compile(r"^[0-9]+[.][0-9]+[.][0-9]+$")


def create_schema(call: ApiCall) -> Message:
    """Registers a schema. The pair of its title and its version is one of its kind in a store."""
    ensure_default_store(call.services, call.request.parent)
    schema = call.request.metadata_schema
    title = parse_schema(schema.schema).get("title", "")
    if not _TITLE.fullmatch(str(title)):
        message = f"MetadataSchema must include a schema title that satisfies the following regex: {_TITLE.pattern}"
        raise ApiError(StatusCode.INVALID_ARGUMENT, message)
    if not _VERSION.fullmatch(schema.schema_version):
        message = f"schema_version {schema.schema_version!r} does not satisfy the following regex: {_VERSION.pattern}"
        raise ApiError(StatusCode.INVALID_ARGUMENT, message)
    known = schemas_of(call.services, call.request.parent)
    if any((title_of(each), each.schema_version) == (title, schema.schema_version) for each in known):
        message = f"MetadataSchema with title {title} and version {schema.schema_version} already exists"
        raise ApiError(StatusCode.ALREADY_EXISTS, message)
    if not call.request.metadata_schema_id:
        call.request.metadata_schema_id = schema_id(title, schema.schema_version)
    return run_standard(call)


def list_schemas(call: ApiCall) -> Message:
    ensure_default_store(call.services, call.request.parent)
    return run_standard(call)
