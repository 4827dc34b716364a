"""Metadata stores. The one called ``default`` is made when a project's metadata is first used in a location."""

from __future__ import annotations

from typing import Any

from google.cloud.aiplatform_v1.types import metadata_store
from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.standard import run_standard
from t5x_harness.google.vertex.metadata.schemas import add_system_schemas
from t5x_harness.google.vertex.services import Call, Services
from t5x_harness.google.vertex.wire.errors import ApiError, Code

__all__ = ["create", "ensure_default_store"]

_DEFAULT = "/metadataStores/default"
_Store = metadata_store.MetadataStore.pb()


def create(call: Call) -> Message:
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
