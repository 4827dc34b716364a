"""Metadata stores. The one called ``default`` is made when a project's metadata is first used in a location."""

from __future__ import annotations

from typing import Any

from google.cloud.aiplatform_v1.types import metadata_store
from google.protobuf.message import Message

from t5x_harness.google.vertex.api.errors import ApiError, Code
from t5x_harness.google.vertex.api.handlers import Call, Handlers
from t5x_harness.google.vertex.api.service import Api
from t5x_harness.google.vertex.metadata.schemas import add_system_schemas

__all__ = ["HANDLERS", "ensure_default_store"]

HANDLERS = Handlers()

_DEFAULT = "/metadataStores/default"
_Store = metadata_store.MetadataStore.pb()


@HANDLERS.on("MetadataService.CreateMetadataStore")
def create(call: Call) -> Message:
    """Makes a store with the schemas that every store has."""
    call.request.metadata_store.ClearField("state")
    operation: Any = call.standard()
    made = _Store()
    operation.response.Unpack(made)
    add_system_schemas(call.api, made.name)
    answer: Message = operation
    return answer


def ensure_default_store(api: Api, store: str) -> None:
    """Makes a store that is not there, if it is called ``default``; any other has to be made by its user."""
    if not store.endswith(_DEFAULT) or api.resources.exists(store):
        return
    try:
        api.resources.create(store, _Store())
    except ApiError as error:
        if error.code is not Code.ALREADY_EXISTS:  # somebody else met it first
            raise
    else:
        add_system_schemas(api, store)
