"""The three kinds of nodes of a metadata store."""

from __future__ import annotations

import dataclasses
from typing import Any

from google.cloud.aiplatform_v1.types import artifact, context, execution, metadata_schema
from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.names import collection_of
from t5x_harness.google.vertex.services import ApiCall, Services
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode

_SchemaType = metadata_schema.MetadataSchema.MetadataSchemaType


@dataclasses.dataclass(frozen=True)
class NodeKind:
    """A kind of nodes.

    Attributes:
      noun: ``Artifact``, as methods and messages are called.
      collection: ``artifacts``, as names have it.
      schema_type: of the schemas that their metadata may have.
    """

    noun: str
    collection: str
    message: type[Message]
    schema_type: int

    @property
    def field(self) -> str:
        """``artifact``, as requests have it."""
        return self.noun.lower()


ARTIFACT = NodeKind("Artifact", "artifacts", artifact.Artifact.pb(), _SchemaType.ARTIFACT_TYPE)
EXECUTION = NodeKind("Execution", "executions", execution.Execution.pb(), _SchemaType.EXECUTION_TYPE)
CONTEXT = NodeKind("Context", "contexts", context.Context.pb(), _SchemaType.CONTEXT_TYPE)
KINDS = (ARTIFACT, EXECUTION, CONTEXT)


def kind_of(call: ApiCall) -> NodeKind:
    """Returns the kind that a method such as ``ListArtifacts`` is for."""
    return next(kind for kind in KINDS if kind.noun in call.rpc.method)


def get_node(services: Services, name: str, kind: NodeKind) -> Any:
    """Returns a node; raises ApiError if it is not there, or if the name is of something else."""
    if name.count("/") != 7 or collection_of(name) != kind.collection or "#" in name:
        shape = f"projects/*/locations/*/metadataStores/*/{kind.collection}/*"
        raise ApiError(StatusCode.INVALID_ARGUMENT, f"{name!r} is not the name of a {kind.noun}: {shape}")
    found = services.resources.find(name, kind.message)
    if found is None:
        message = f"Get{kind.noun} is unable to find {kind.field} resource with name: {name}"
        raise ApiError(StatusCode.NOT_FOUND, f"Resource not found.; {message}")
    return found


def store_of(name: str) -> str:
    """Returns the name of the metadata store that a node or a schema is in."""
    return "/".join(name.split("/")[:6])
