"""Metadata stores and their schemas. The store called ``default`` is made when it is first used."""

from __future__ import annotations

import re
from typing import Any

from google.cloud.aiplatform_v1.types import metadata_store
from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.standard import run_standard
from t5x_harness.google.vertex.metadata.schemas import add_system_schemas, parse_schema, schemas_of, title_of
from t5x_harness.google.vertex.metadata.system_schemas import schema_id
from t5x_harness.google.vertex.services import Call, Services
from t5x_harness.google.vertex.wire.errors import ApiError, Code

_DEFAULT = "/metadataStores/default"
_Store = metadata_store.MetadataStore.pb()


def create_store(call: Call) -> Message:
    """Makes a store with the schemas that every store has."""
    call.request.metadata_store.ClearField("state")
    operation: Any = run_standard(call)
    made = _Store()
    operation.response.Unpack(made)
    add_system_schemas(call.services, made.name)
    answer: Message = operation
    return answer


def ensure_default_store(services: Services, store: str) -> None:
    """Makes a store that is not there, if it is called ``default``; any other has to be made by its user."""
    if not store.endswith(_DEFAULT) or services.resources.exists(store):
        return
    try:
        services.resources.create(store, _Store())
    except ApiError as error:
        if error.code is not Code.ALREADY_EXISTS:  # somebody else met it first
            raise
    else:
        add_system_schemas(services, store)


_TITLE = re.compile(r"^[a-z][a-z0-9-_]{2,20}[.][A-Z][a-zA-Z0-9-_]{2,49}$")
_VERSION = re.compile(r"^[0-9]+[.][0-9]+[.][0-9]+$")


def create_schema(call: Call) -> Message:
    """Registers a schema. The pair of its title and its version is one of its kind in a store."""
    ensure_default_store(call.services, call.request.parent)
    schema = call.request.metadata_schema
    title = parse_schema(schema.schema).get("title", "")
    if not _TITLE.fullmatch(str(title)):
        message = f"MetadataSchema must include a schema title that satisfies the following regex: {_TITLE.pattern}"
        raise ApiError(Code.INVALID_ARGUMENT, message)
    if not _VERSION.fullmatch(schema.schema_version):
        message = f"schema_version {schema.schema_version!r} does not satisfy the following regex: {_VERSION.pattern}"
        raise ApiError(Code.INVALID_ARGUMENT, message)
    known = schemas_of(call.services, call.request.parent)
    if any((title_of(each), each.schema_version) == (title, schema.schema_version) for each in known):
        message = f"MetadataSchema with title {title} and version {schema.schema_version} already exists"
        raise ApiError(Code.ALREADY_EXISTS, message)
    if not call.request.metadata_schema_id:
        call.request.metadata_schema_id = schema_id(title, schema.schema_version)
    return run_standard(call)


def list_schemas(call: Call) -> Message:
    ensure_default_store(call.services, call.request.parent)
    return run_standard(call)
