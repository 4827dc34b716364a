"""Artifacts, executions and contexts: what their service adds to the standard methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.kinds import ResourceKind
from t5x_harness.google.vertex.messages.masks import apply_mask
from t5x_harness.google.vertex.messages.matching import matcher
from t5x_harness.google.vertex.messages.standard import run_standard
from t5x_harness.google.vertex.metadata import links
from t5x_harness.google.vertex.metadata.kinds import CONTEXT, get_node, kind_of, store_of
from t5x_harness.google.vertex.metadata.stores import conform, ensure_default_store
from t5x_harness.google.vertex.services import ApiCall
from t5x_harness.google.vertex.wire.errors import ApiError, FieldViolation, invalid_field
from t5x_harness.google.vertex.wire.rpc_table import message_class

_LARGEST_METADATA = 200 * 1024  # bytes
_LONGEST_DISPLAY_NAME = 128
_LARGEST_SAMPLE = 100


def create(call: ApiCall) -> Message:
    """Creates a node with metadata that conforms to its schema."""
    kind = kind_of(call)
    ensure_default_store(call.services, call.request.parent)
    node = getattr(call.request, kind.field)
    _prepare(node, kind)
    conform(call.services, node, kind, call.request.parent)
    return run_standard(call)


def get(call: ApiCall) -> Message:
    kind = kind_of(call)
    return get_node(call.services, call.request.name, kind)


def list_nodes(call: ApiCall) -> Message:
    ensure_default_store(call.services, call.request.parent)
    return run_standard(call)


def update(call: ApiCall) -> Message:
    """Changes a node, which still has to conform to its schema."""
    kind = kind_of(call)
    given = getattr(call.request, kind.field)
    if call.request.allow_missing and not call.services.resources.exists(given.name):
        ensure_default_store(call.services, store_of(given.name))
        _prepare(given, kind)
        conform(call.services, given, kind, store_of(given.name))
        return run_standard(call)
    changed = get_node(call.services, given.name, kind)
    _prepare(given, kind, parents=getattr(changed, "parent_contexts", ()))
    apply_mask(changed, given, call.request.update_mask.paths)
    conform(call.services, changed, kind, store_of(given.name))
    return run_standard(call)


def delete(call: ApiCall) -> Message:
    """Deletes a node and its links."""
    kind = kind_of(call)
    node = get_node(call.services, call.request.name, kind)
    with links.cutting(call.services, node):
        return run_standard(call)


def _prepare(node: Any, kind: ResourceKind, parents: Sequence[str] = ()) -> None:
    """Checks a node in a request, and brings it into the form in which it is kept.

    Args:
      node: the node.
      kind: its kind.
      parents: the parents of a context, which only AddContextChildren can change.

    Raises:
      ApiError: INVALID_ARGUMENT: the node is not valid.
    """
    _check(node, kind)
    _trim_keys(node.metadata)
    if kind is CONTEXT:
        node.parent_contexts[:] = parents


def _check(node: Any, kind: ResourceKind) -> None:
    found = []
    if len(node.display_name) > _LONGEST_DISPLAY_NAME:
        message = f"it has {len(node.display_name)} characters; at most {_LONGEST_DISPLAY_NAME} are allowed"
        found.append(FieldViolation(f"{kind.field}.display_name", message))
    if node.metadata.ByteSize() > _LARGEST_METADATA:
        message = f"it has {node.metadata.ByteSize()} bytes; at most 200 KB are allowed"
        found.append(FieldViolation(f"{kind.field}.metadata", message))
    if found:
        raise ApiError.of_violations(found)


def _trim_keys(metadata: Any) -> None:
    """Removes spaces around the top-level keys."""
    for key in [key for key in metadata.fields if key != key.strip()]:
        metadata.fields[key.strip()].CopyFrom(metadata.fields[key])
        del metadata.fields[key]


def purge(call: ApiCall) -> Message:
    """Deletes the nodes that match a filter, or lists them."""
    kind = kind_of(call)
    request = call.request
    if not request.filter:
        raise invalid_field("filter", "it is required")
    matches = matcher(request.filter, call.services)
    nodes: list[Any] = call.services.resources.list(request.parent, kind.collection, kind.message)
    found = [node for node in nodes if matches(node)]
    response: Any = message_class(f"Purge{kind.plural}Response")(purge_count=len(found))
    if request.force:
        for node in found:
            with links.cutting(call.services, node):
                call.services.resources.delete(node.name)
    else:
        response.purge_sample.extend(node.name for node in found[:_LARGEST_SAMPLE])
    metadata: Any = message_class(f"Purge{kind.plural}Metadata")()
    metadata.generic_metadata.create_time.FromNanoseconds(call.services.clock.now())
    metadata.generic_metadata.update_time.CopyFrom(metadata.generic_metadata.create_time)
    return call.services.operations.done(response, request.parent, metadata)
