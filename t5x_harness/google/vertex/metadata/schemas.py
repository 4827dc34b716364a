"""Metadata schemas: those that come with a store, and those that users register."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import yaml
from google.cloud.aiplatform_v1.types import metadata_schema
from google.protobuf import json_format
from google.protobuf.message import Message

from t5x_harness.google.vertex.api.errors import ApiError, Code
from t5x_harness.google.vertex.api.handlers import Call, Handlers
from t5x_harness.google.vertex.api.service import Api
from t5x_harness.google.vertex.metadata.conformity import violations
from t5x_harness.google.vertex.metadata.kinds import NodeKind, store_of
from t5x_harness.google.vertex.metadata.system_schemas import schema_id, system_schemas

__all__ = ["HANDLERS", "add_system_schemas", "conform", "title_of"]

HANDLERS = Handlers()

_COLLECTION = "metadataSchemas"
_Schema = metadata_schema.MetadataSchema.pb()
_TITLE = re.compile(r"^[a-z][a-z0-9-_]{2,20}[.][A-Z][a-zA-Z0-9-_]{2,49}$")
_VERSION = re.compile(r"^[0-9]+[.][0-9]+[.][0-9]+$")


@HANDLERS.on("MetadataService.CreateMetadataSchema")
def create(call: Call) -> Message:
    """Registers a schema. The pair of its title and its version is one of its kind in a store."""
    schema = call.request.metadata_schema
    title = _parse(schema.schema).get("title", "")
    if not _TITLE.fullmatch(str(title)):
        message = f"MetadataSchema must include a schema title that satisfies the following regex: {_TITLE.pattern}"
        raise ApiError(Code.INVALID_ARGUMENT, message)
    if not _VERSION.fullmatch(schema.schema_version):
        message = f"schema_version {schema.schema_version!r} does not satisfy the following regex: {_VERSION.pattern}"
        raise ApiError(Code.INVALID_ARGUMENT, message)
    if (title, schema.schema_version) in _by_title(call.api, call.request.parent):
        message = f"MetadataSchema with title {title} and version {schema.schema_version} already exists"
        raise ApiError(Code.ALREADY_EXISTS, message)
    if not call.request.metadata_schema_id:
        call.request.metadata_schema_id = schema_id(title, schema.schema_version)
    return call.standard()


def add_system_schemas(api: Api, store: str) -> None:
    """Registers the schemas that a new store has."""
    for wrapped in system_schemas():
        schema = metadata_schema.MetadataSchema.pb(wrapped)
        name = schema_id(_parse(schema.schema)["title"], schema.schema_version)
        api.resources.create(f"{store}/{_COLLECTION}/{name}", schema)


def conform(api: Api, node: Any, kind: NodeKind, name: str) -> None:
    """Holds a node to its schema, and gives it the schema's latest version if it names none.

    Args:
      api: that has the store.
      node: the message; its ``schema_version`` may be set.
      kind: of the node.
      name: of the node or of its store.

    Raises:
      ApiError: NOT_FOUND for a schema that is not registered; INVALID_ARGUMENT for metadata that is not as it says, or
        for a schema of another kind of nodes.
    """
    if not node.schema_title:
        return
    known = _by_title(api, store_of(name))
    versions = [version for title, version in known if title == node.schema_title]
    if versions and not node.schema_version:
        node.schema_version = max(versions, key=lambda version: [int(part) for part in version.split(".")])
    schema = known.get((node.schema_title, node.schema_version))
    if schema is None:
        wanted = " and version ".join(filter(None, (node.schema_title, node.schema_version)))
        registered = f"its versions are {', '.join(versions)}" if versions else "CreateMetadataSchema registers schemas"
        message = f"MetadataSchema with title {wanted} is not registered in {store_of(name)}; {registered}"
        raise ApiError(Code.NOT_FOUND, message)
    if schema.schema_type != kind.schema_type:
        message = f"The schema {node.schema_title!r} is not one for {kind.collection}."
        raise ApiError(Code.INVALID_ARGUMENT, message)
    found = list(violations(_parse(schema.schema), json_format.MessageToDict(node.metadata)))
    if found:
        message = f"The metadata does not match the schema {node.schema_title!r}: {' '.join(found)}"
        raise ApiError(Code.INVALID_ARGUMENT, message)


def _by_title(api: Api, store: str) -> dict[tuple[str, str], Any]:
    schemas: list[Any] = api.resources.list(store, _COLLECTION, _Schema)
    return {(title_of(schema), schema.schema_version): schema for schema in schemas}


def title_of(schema: Any) -> str:
    """The title in a schema's text."""
    return str(_parse(schema.schema).get("title", ""))


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> Mapping[str, Any]:
    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ApiError(Code.INVALID_ARGUMENT, f"The schema is not YAML: {error}") from None
    if not isinstance(read, Mapping):
        raise ApiError(Code.INVALID_ARGUMENT, "The schema is not a YAML mapping with a title and properties.")
    return read
