"""The three kinds of nodes of a metadata store."""

from __future__ import annotations

from typing import Any

from t5x_harness.google.vertex.messages.kinds import KINDS, ResourceKind
from t5x_harness.google.vertex.messages.names import collection_of
from t5x_harness.google.vertex.services import ApiCall, Services
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode, invalid_argument

ARTIFACT, EXECUTION, CONTEXT = KINDS["Artifact"], KINDS["Execution"], KINDS["Context"]


def kind_of(call: ApiCall) -> ResourceKind:
    """Returns the kind of nodes of a method such as ``ListArtifacts``."""
    return next(kind for kind in (ARTIFACT, EXECUTION, CONTEXT) if kind.name in call.rpc.method)


def get_node(services: Services, name: str, kind: ResourceKind) -> Any:
    """Returns a node; raises ApiError if it does not exist, or if the name is not that of such a node."""
    if name.count("/") != 7 or collection_of(name) != kind.collection or "#" in name:
        shape = f"projects/*/locations/*/metadataStores/*/{kind.collection}/*"
        raise invalid_argument(f"{name!r} is not the name of a {kind.name}: {shape}")
    found = services.resources.find(name, kind.message)
    if found is None:
        message = f"Get{kind.name} is unable to find {kind.field} resource with name: {name}"
        raise ApiError(StatusCode.NOT_FOUND, f"Resource not found.; {message}")
    return found


def store_of(name: str) -> str:
    """Returns the name of the metadata store of a node or a schema."""
    return "/".join(name.split("/")[:6])
