"""Contexts: what is in them, and how they are nested."""

from __future__ import annotations

from typing import Any

from google.cloud.aiplatform_v1.types import metadata_service
from google.protobuf.message import Message

from t5x_harness.google.vertex.metadata import links
from t5x_harness.google.vertex.metadata.kinds import ARTIFACT, CONTEXT, EXECUTION, get_node
from t5x_harness.google.vertex.services import Call, Services
from t5x_harness.google.vertex.wire.errors import ApiError, Code

_MOST_PARENTS = 10


def add_members(call: Call) -> Message:
    """Puts artifacts and executions into a context; those that are in it are skipped."""
    request = call.request
    context = get_node(call.services, request.context, CONTEXT)
    nodes = [get_node(call.services, name, ARTIFACT) for name in request.artifacts]
    nodes += [get_node(call.services, name, EXECUTION) for name in request.executions]
    for node in nodes:
        links.add_member(call.services, context.name, node.name)
    return _response(metadata_service.AddContextArtifactsAndExecutionsResponse)


def add_children(call: Call) -> Message:
    """Makes contexts children of a context; those that are are skipped. If one cannot be, none is."""
    parent = get_node(call.services, call.request.context, CONTEXT)
    children = [get_node(call.services, name, CONTEXT) for name in call.request.child_contexts]
    above = _with_ancestors(call.services, parent)
    for child in children:
        _check_child(child, parent, above)
    for child in children:
        links.add_child(call.services, parent.name, child.name)
    return _response(metadata_service.AddContextChildrenResponse)


def remove_children(call: Call) -> Message:
    """Makes contexts children of a context no longer; those that are none are skipped."""
    parent = get_node(call.services, call.request.context, CONTEXT)
    for child in [get_node(call.services, name, CONTEXT) for name in call.request.child_contexts]:
        links.remove_child(call.services, parent.name, child.name)
    return _response(metadata_service.RemoveContextChildrenResponse)


def _check_child(child: Any, parent: Any, above: set[str]) -> None:
    if child.name in above:
        message = f"Context {child.name} cannot be a child of {parent.name}: the contexts would form a cycle"
        raise ApiError(Code.INVALID_ARGUMENT, message)
    if parent.name not in child.parent_contexts and len(child.parent_contexts) >= _MOST_PARENTS:
        message = f"Context {child.name} has {len(child.parent_contexts)} parents; at most {_MOST_PARENTS} are allowed"
        raise ApiError(Code.INVALID_ARGUMENT, message)


def _with_ancestors(services: Services, context: Any) -> set[str]:
    """The names of a context and of all that it is below of."""
    found: set[str] = set()
    left = [context]
    while left:
        each = left.pop()
        found.add(each.name)
        above = (services.resources.find(name, CONTEXT.message) for name in each.parent_contexts if name not in found)
        left += [parent for parent in above if parent is not None]
    return found


def _response(kind: Any) -> Message:
    message: Message = kind.pb()()
    return message
