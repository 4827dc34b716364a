"""Metadata schemas: what they say, and whether a node is as its schema says."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from google.cloud.aiplatform_v1.types import metadata_schema
from google.protobuf import json_format

from t5x_harness.google.vertex.metadata.kinds import NodeKind, store_of
from t5x_harness.google.vertex.metadata.system_schemas import schema_id, system_schemas
from t5x_harness.google.vertex.services import Services
from t5x_harness.google.vertex.wire.errors import ApiError, Code


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
        raise ApiError(Code.NOT_FOUND, message)
    if schema.schema_type not in (kind.schema_type, _ANY_KIND):
        message = f"The schema {node.schema_title!r} is not one for {kind.collection}."
        raise ApiError(Code.INVALID_ARGUMENT, message)
    found = list(violations(parse_schema(schema.schema), json_format.MessageToDict(node.metadata)))
    if found:
        message = f"The metadata does not match the schema {node.schema_title!r}: {' '.join(found)}"
        raise ApiError(Code.INVALID_ARGUMENT, message)


def schemas_of(services: Services, store: str) -> list[Any]:
    return services.resources.list(store, _COLLECTION, _Schema)


def _versions(services: Services, store: str, node: Any) -> dict[str, Any]:
    """The schemas with the title that a node names, by their versions.

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
    """The title in a schema's text; empty for a schema without a text, which filters are tried on."""
    return str(parse_schema(schema.schema).get("title", "")) if schema.schema else ""


@functools.lru_cache(maxsize=256)
def parse_schema(text: str) -> Mapping[str, Any]:
    """Reads a schema's text; raises ApiError (INVALID_ARGUMENT) if it is no YAML mapping."""
    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ApiError(Code.INVALID_ARGUMENT, f"The schema is not YAML: {error}") from None
    if not isinstance(read, Mapping):
        raise ApiError(Code.INVALID_ARGUMENT, "The schema is not a YAML mapping with a title and properties.")
    return read
