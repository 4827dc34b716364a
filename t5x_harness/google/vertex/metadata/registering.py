"""Registering metadata schemas, and listing them."""

from __future__ import annotations

import re

from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.standard import run_standard
from t5x_harness.google.vertex.metadata.schemas import parse_schema, schemas_of, title_of
from t5x_harness.google.vertex.metadata.stores import ensure_default_store
from t5x_harness.google.vertex.metadata.system_schemas import schema_id
from t5x_harness.google.vertex.services import Call
from t5x_harness.google.vertex.wire.errors import ApiError, Code

__all__ = ["create", "list_schemas"]

_TITLE = re.compile(r"^[a-z][a-z0-9-_]{2,20}[.][A-Z][a-zA-Z0-9-_]{2,49}$")
_VERSION = re.compile(r"^[0-9]+[.][0-9]+[.][0-9]+$")


def create(call: Call) -> Message:
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
    """The schemas of a store."""
    ensure_default_store(call.services, call.request.parent)
    return run_standard(call)
