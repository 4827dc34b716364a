"""Purging: deleting all artifacts, executions or contexts that a filter matches."""

from __future__ import annotations

from typing import Any

from google.cloud.aiplatform_v1.types import metadata_service
from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.filters import parse_filter
from t5x_harness.google.vertex.messages.matching import Matcher
from t5x_harness.google.vertex.metadata import links
from t5x_harness.google.vertex.metadata.kinds import kind_of
from t5x_harness.google.vertex.services import Call
from t5x_harness.google.vertex.wire.errors import ApiError, Violation

__all__ = ["purge"]

_LARGEST_SAMPLE = 100


def purge(call: Call) -> Message:
    """Deletes the nodes that a filter matches, or says which they are."""
    kind = kind_of(call)
    plural = f"{kind.noun}s"
    request = call.request
    if not request.filter:
        raise ApiError.of_violations([Violation("filter", "it is required")])
    matches = Matcher(parse_filter(request.filter), call.services)
    nodes: list[Any] = call.services.resources.list(request.parent, kind.collection, kind.message)
    found = [node for node in nodes if matches(node)]
    response: Any = getattr(metadata_service, f"Purge{plural}Response").pb()(purge_count=len(found))
    if request.force:
        for node in found:
            _delete(call, node)
    else:
        response.purge_sample.extend(node.name for node in found[:_LARGEST_SAMPLE])
    return call.services.operations.done(response, request.parent, _metadata(call, plural))


def _delete(call: Call, node: Any) -> None:
    connections = links.connections_of(call.services, node)
    call.services.resources.delete(node.name)
    links.cut(call.services, node.name, connections)


def _metadata(call: Call, plural: str) -> Message:
    metadata: Any = getattr(metadata_service, f"Purge{plural}Metadata").pb()()
    metadata.generic_metadata.create_time.FromNanoseconds(call.services.clock.now())
    metadata.generic_metadata.update_time.CopyFrom(metadata.generic_metadata.create_time)
    raw: Message = metadata
    return raw
