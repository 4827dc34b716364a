"""Contexts: their members, how they are nested, and functions in filters of MetadataService."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from t5x_harness.google.vertex.metadata import links
from t5x_harness.google.vertex.metadata.kinds import ARTIFACT, CONTEXT, EXECUTION, get_node
from t5x_harness.google.vertex.metadata.stores import title_of
from t5x_harness.google.vertex.services import ApiCall, FilterFunction, Services
from t5x_harness.google.vertex.wire.errors import invalid_argument

_MOST_PARENTS = 10


def add_members(call: ApiCall) -> Message:
    """Adds artifacts and executions to a context, if they are not in it."""
    request = call.request
    context = get_node(call.services, request.context, CONTEXT)
    nodes = [get_node(call.services, name, ARTIFACT) for name in request.artifacts]
    nodes += [get_node(call.services, name, EXECUTION) for name in request.executions]
    for node in nodes:
        links.add_member(call.services, context.name, node.name)
    return call.rpc.response()


def add_children(call: ApiCall) -> Message:
    """Makes contexts children of a context, or none of them if one cannot be a child."""
    parent = get_node(call.services, call.request.context, CONTEXT)
    children = [get_node(call.services, name, CONTEXT) for name in call.request.child_contexts]
    above = _with_ancestors(call.services, parent)
    for child in children:
        _check_child(child, parent, above)
    for child in children:
        links.add_child(call.services, parent.name, child.name)
    return call.rpc.response()


def remove_children(call: ApiCall) -> Message:
    """Removes contexts from the children of a context, if they are among them."""
    parent = get_node(call.services, call.request.context, CONTEXT)
    for child in [get_node(call.services, name, CONTEXT) for name in call.request.child_contexts]:
        links.remove_child(call.services, parent.name, child.name)
    return call.rpc.response()


def _check_child(child: Any, parent: Any, above: set[str]) -> None:
    if child.name in above:
        message = f"Context {child.name} cannot be a child of {parent.name}: the contexts would form a cycle"
        raise invalid_argument(message)
    if parent.name not in child.parent_contexts and len(child.parent_contexts) >= _MOST_PARENTS:
        message = f"Context {child.name} has {len(child.parent_contexts)} parents; at most {_MOST_PARENTS} are allowed"
        raise invalid_argument(message)


def _with_ancestors(services: Services, context: Any) -> set[str]:
    """Returns the names of a context and all its ancestors."""
    found: set[str] = set()
    left = [context]
    while left:
        each = left.pop()
        found.add(each.name)
        above = (services.resources.find(name, CONTEXT.message) for name in each.parent_contexts if name not in found)
        left += [parent for parent in above if parent is not None]
    return found


def _in_context(services: Services, node: Any, arguments: Sequence[str]) -> bool:
    """Evaluates ``in_context("NAME")``: whether an artifact or an execution is in a context."""
    if len(arguments) != 1 or node.DESCRIPTOR.name not in (ARTIFACT.name, EXECUTION.name):
        message = "in_context takes the full name of one context, and is for artifacts and executions"
        raise invalid_argument(f"Invalid filter: {message}")
    return arguments[0] in links.contexts_of(services, node.name)


def _child_contexts(services: Services, context: Any, arguments: Sequence[str]) -> bool:
    """Evaluates ``child_contexts:"NAME"``: whether a context is a parent of another."""
    operator, wanted = arguments
    if operator != ":":
        raise invalid_argument("Invalid filter: child_contexts can be compared only with `:`")
    found = links.children(services, context.name)
    return bool(found) if wanted == "*" else wanted in found


def _schema_title(_: Services, schema: Any, arguments: Sequence[str]) -> bool:
    """Evaluates ``schema_title="system.*"``: whether a schema's title matches; ``*`` stands for anything."""
    operator, wanted = arguments
    if operator not in ("=", "!=", ":"):
        raise invalid_argument("Invalid filter: schema_title can be compared only with =, != and :")
    pattern = re.escape(wanted).replace(r"\*", ".*")
    return bool(re.fullmatch(pattern, title_of(schema))) == (operator != "!=")


FILTERS: Mapping[str, FilterFunction] = {
    "in_context": _in_context,
    "Context.child_contexts": _child_contexts,
    "MetadataSchema.schema_title": _schema_title,
}
