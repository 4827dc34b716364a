"""Artifacts, executions and contexts: what their service adds to the common rules for resources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message

from t5x_harness.google.vertex.api.errors import ApiError, Violation
from t5x_harness.google.vertex.api.handlers import Call, Handlers
from t5x_harness.google.vertex.api.masks import apply_mask
from t5x_harness.google.vertex.metadata import links
from t5x_harness.google.vertex.metadata.kinds import CONTEXT, KINDS, NodeKind, get_node, store_of
from t5x_harness.google.vertex.metadata.schemas import conform
from t5x_harness.google.vertex.metadata.stores import ensure_default_store

__all__ = ["HANDLERS"]

HANDLERS = Handlers()

_LARGEST_METADATA = 200 * 1024  # bytes
_LONGEST_DISPLAY_NAME = 128


def _register(kind: NodeKind) -> None:
    """Registers the methods of one kind."""

    @HANDLERS.on(f"MetadataService.Create{kind.noun}")
    def create(call: Call) -> Message:
        ensure_default_store(call.api, call.request.parent)
        node = getattr(call.request, kind.field)
        _prepare(node, kind)
        conform(call.api, node, kind, call.request.parent)
        return call.standard()

    @HANDLERS.on(f"MetadataService.Get{kind.noun}")
    def get(call: Call) -> Message:
        found: Message = get_node(call.api, call.request.name, kind)
        return found

    @HANDLERS.on(f"MetadataService.List{kind.noun}s")
    def list_nodes(call: Call) -> Message:
        ensure_default_store(call.api, call.request.parent)
        return call.standard()

    @HANDLERS.on(f"MetadataService.Update{kind.noun}")
    def update(call: Call) -> Message:
        given = getattr(call.request, kind.field)
        if call.request.allow_missing and not call.api.resources.exists(given.name):
            ensure_default_store(call.api, store_of(given.name))
            _prepare(given, kind)
            conform(call.api, given, kind, store_of(given.name))
            return call.standard()
        changed = get_node(call.api, given.name, kind)
        _prepare(given, kind, parents=getattr(changed, "parent_contexts", ()))
        apply_mask(changed, given, call.request.update_mask.paths)
        conform(call.api, changed, kind, store_of(given.name))
        return call.standard()

    @HANDLERS.on(f"MetadataService.Delete{kind.noun}")
    def delete(call: Call) -> Message:
        node = get_node(call.api, call.request.name, kind)
        connections = links.connections_of(call.api, node)
        answer = call.standard()
        links.cut(call.api, node.name, connections)
        return answer


def _prepare(node: Any, kind: NodeKind, parents: Sequence[str] = ()) -> None:
    """Brings a node that a request holds into the form in which it is kept.

    Args:
      node: its message.
      kind: what it is.
      parents: of a context; AddContextChildren sets them, and nothing else does.

    Raises:
      ApiError: INVALID_ARGUMENT: it cannot be kept.
    """
    _check(node, kind)
    _trim_keys(node.metadata)
    if kind is CONTEXT:
        node.parent_contexts[:] = parents


def _check(node: Any, kind: NodeKind) -> None:
    found = []
    if len(node.display_name) > _LONGEST_DISPLAY_NAME:
        message = f"it has {len(node.display_name)} characters; at most {_LONGEST_DISPLAY_NAME} are allowed"
        found.append(Violation(f"{kind.field}.display_name", message))
    if node.metadata.ByteSize() > _LARGEST_METADATA:
        message = f"it has {node.metadata.ByteSize()} bytes; at most 200 KB are allowed"
        found.append(Violation(f"{kind.field}.metadata", message))
    if found:
        raise ApiError.of_violations(found)


def _trim_keys(metadata: Any) -> None:
    """Removes spaces around the keys at the top."""
    for key in [key for key in metadata.fields if key != key.strip()]:
        metadata.fields[key.strip()].CopyFrom(metadata.fields[key])
        del metadata.fields[key]


for _kind in KINDS:
    _register(_kind)
