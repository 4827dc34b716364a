"""Artifacts, executions and contexts: their methods beyond the standard ones, and their lineage."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from google.cloud.aiplatform_v1.types import event as event_types
from google.cloud.aiplatform_v1.types import lineage_subgraph
from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.filters import matcher
from t5x_harness.google.vertex.messages.names import ResourceKind, root_of
from t5x_harness.google.vertex.messages.paths import apply_mask
from t5x_harness.google.vertex.messages.standard import answered, run_standard
from t5x_harness.google.vertex.metadata import stores
from t5x_harness.google.vertex.metadata.stores import (
    ARTIFACT,
    CONTEXT,
    EXECUTION,
    conform,
    ensure_default_store,
    get_node,
    kind_of,
    title_of,
)
from t5x_harness.google.vertex.services import ApiCall, FilterFunction, Services, aspect_key
from t5x_harness.google.vertex.wire.errors import (
    ApiError,
    FieldViolation,
    failed_precondition,
    invalid_argument,
    invalid_field,
)
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
    return get_node(call.services, call.request.name, kind_of(call))


def list_nodes(call: ApiCall) -> Message:
    ensure_default_store(call.services, call.request.parent)
    return run_standard(call)


def update(call: ApiCall) -> Message:
    """Changes a node, which still has to conform to its schema."""
    kind = kind_of(call)
    given = getattr(call.request, kind.field)
    if call.request.allow_missing and not call.services.resources.exists(given.name):
        ensure_default_store(call.services, root_of(given.name))
        _prepare(given, kind)
        conform(call.services, given, kind, root_of(given.name))
        return run_standard(call)
    changed = get_node(call.services, given.name, kind)
    _prepare(given, kind, parents=getattr(changed, "parent_contexts", ()))
    apply_mask(changed, given, call.request.update_mask.paths)
    conform(call.services, changed, kind, root_of(given.name))
    return run_standard(call)


def delete(call: ApiCall) -> Message:
    """Deletes a node and its links."""
    kind = kind_of(call)
    node = get_node(call.services, call.request.name, kind)
    with stores.cutting(call.services, node):
        return run_standard(call)


def _prepare(node: Any, kind: ResourceKind, parents: Sequence[str] = ()) -> None:
    """Checks a node in a request, and converts it to the form in which it is stored.

    Args:
      node: the node.
      kind: its kind.
      parents: the parents of a context, which only AddContextChildren can change.

    Raises:
      ApiError: INVALID_ARGUMENT: the node is not valid.
    """
    found = []
    if len(node.display_name) > _LONGEST_DISPLAY_NAME:
        message = f"it has {len(node.display_name)} characters; at most {_LONGEST_DISPLAY_NAME} are allowed"
        found.append(FieldViolation(f"{kind.field}.display_name", message))
    if node.metadata.ByteSize() > _LARGEST_METADATA:
        message = f"it has {node.metadata.ByteSize()} bytes; at most 200 KB are allowed"
        found.append(FieldViolation(f"{kind.field}.metadata", message))
    if found:
        raise ApiError.of_violations(found)
    for key in [key for key in node.metadata.fields if key != key.strip()]:
        node.metadata.fields[key.strip()].CopyFrom(node.metadata.fields[key])
        del node.metadata.fields[key]
    if kind is CONTEXT:
        node.parent_contexts[:] = parents


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
            with stores.cutting(call.services, node):
                call.services.resources.delete(node.name)
    else:
        response.purge_sample.extend(node.name for node in found[:_LARGEST_SAMPLE])
    return answered(call, response, about=request.parent)


_MOST_PARENTS = 10


def add_members(call: ApiCall) -> Message:
    """Adds artifacts and executions to a context, if they are not in it."""
    request = call.request
    context = get_node(call.services, request.context, CONTEXT)
    nodes = [get_node(call.services, name, ARTIFACT) for name in request.artifacts]
    nodes += [get_node(call.services, name, EXECUTION) for name in request.executions]
    for node in nodes:
        call.services.state.add(aspect_key(node.name, stores.CONTEXTS), context.name)
        call.services.state.add(aspect_key(context.name, stores.MEMBERS), node.name)
    return call.rpc.response()


def add_children(call: ApiCall) -> Message:
    """Makes contexts children of a context, or none of them if one cannot be a child."""
    parent = get_node(call.services, call.request.context, CONTEXT)
    children = [get_node(call.services, name, CONTEXT) for name in call.request.child_contexts]
    above = _with_ancestors(call.services, parent)
    for child in children:
        if child.name in above:
            message = f"Context {child.name} cannot be a child of {parent.name}: the contexts would form a cycle"
            raise invalid_argument(message)
        count = len(child.parent_contexts)
        if parent.name not in child.parent_contexts and count >= _MOST_PARENTS:
            message = f"Context {child.name} has {count} parents; at most {_MOST_PARENTS} are allowed"
            raise invalid_argument(message)
    for child in children:
        stores.add_child(call.services, parent.name, child.name)
    return call.rpc.response()


def remove_children(call: ApiCall) -> Message:
    """Removes contexts from the children of a context, if they are among them."""
    parent = get_node(call.services, call.request.context, CONTEXT)
    for child in [get_node(call.services, name, CONTEXT) for name in call.request.child_contexts]:
        stores.remove_child(call.services, parent.name, child.name)
    return call.rpc.response()


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
    return arguments[0] in stores.linked(services, node.name, stores.CONTEXTS)


def _child_contexts(services: Services, context: Any, arguments: Sequence[str]) -> bool:
    """Evaluates ``child_contexts:"NAME"``: whether a context is a parent of another."""
    operator, wanted = arguments
    if operator != ":":
        raise invalid_argument("Invalid filter: child_contexts can be compared only with `:`")
    found = stores.linked(services, context.name, stores.CHILDREN)
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


_LARGEST = 1000
_Subgraph = lineage_subgraph.LineageSubgraph.pb()
_NO_TYPE = event_types.Event.Type.TYPE_UNSPECIFIED


def add_events(call: ApiCall) -> Message:
    """Records which artifacts an execution read or made. The first event of an artifact is kept."""
    execution = get_node(call.services, call.request.execution, EXECUTION)
    for number, event in enumerate(call.request.events):
        if event.type_ == _NO_TYPE:
            raise invalid_field(f"events[{number}].type", "it has to be INPUT or OUTPUT")
        event.artifact = get_node(call.services, event.artifact, ARTIFACT).name
    for event in call.request.events:
        event.execution = execution.name
        event.event_time.FromNanoseconds(call.services.clock.now())
        stores.add_event(call.services, event)
    return call.rpc.response()


def query_execution(call: ApiCall) -> Message:
    """Returns an execution with its artifacts and the events between them."""
    execution = get_node(call.services, call.request.execution, EXECUTION)
    artifacts = {event.artifact for event in stores.events_of(call.services, execution.name)}
    return _subgraph(call.services, artifacts, {execution.name})


def query_context(call: ApiCall) -> Message:
    """Returns the artifacts and executions of a context, and the events between them."""
    context = get_node(call.services, call.request.context, CONTEXT)
    members = stores.linked(call.services, context.name, stores.MEMBERS)
    artifacts = {name for name in members if f"/{ARTIFACT.collection}/" in name}
    return _subgraph(call.services, artifacts, members - artifacts)


def query_artifact(call: ApiCall) -> Message:
    """Returns the nodes from which an artifact was made, and those made from it, within a number of hops.

    A hop is a step along an event, from an artifact to an execution or back. A message cannot distinguish 0 hops from
    no number, so both mean all nodes.
    """
    request = call.request
    artifact = get_node(call.services, request.artifact, ARTIFACT)
    if request.max_hops < 0:
        raise invalid_field("max_hops", f"{request.max_hops} is negative")
    matches = matcher(request.filter, call.services)
    artifacts, executions = {artifact.name}, set[str]()
    newest, hops = {artifact.name}, 0
    while newest and (hops < request.max_hops or not request.max_hops):
        hops += 1
        if hops % 2:
            newest = {e for name in newest for e in stores.linked(call.services, name, stores.EXECUTIONS)} - executions
            executions |= newest
        else:
            reached = {e.artifact for name in newest for e in stores.events_of(call.services, name)} - artifacts
            newest = {node.name for node in _nodes(call.services, reached, ARTIFACT) if matches(node)}
            artifacts |= newest
        _check_size(artifacts, executions)
    return _subgraph(call.services, artifacts, executions)


def _subgraph(services: Services, artifacts: Collection[str], executions: Collection[str]) -> Message:
    """Returns these nodes with the events between them."""
    events = [e for name in executions for e in stores.events_of(services, name) if e.artifact in artifacts]
    nodes, makers = _nodes(services, artifacts, ARTIFACT), _nodes(services, executions, EXECUTION)
    _check_size(nodes, makers, events)
    ordered = sorted(events, key=lambda event: event.event_time.ToNanoseconds())
    return _Subgraph(artifacts=nodes, executions=makers, events=ordered)


def _nodes(services: Services, names: Iterable[str], kind: ResourceKind) -> list[Any]:
    """Returns the nodes with these names, except those that were deleted in the meantime."""
    found = services.state.get_all(sorted(names))
    return [kind.message.FromString(data) for data in found if data is not None]


def _check_size(*parts: Any) -> None:
    if any(len(part) > _LARGEST for part in parts):
        message = f"The lineage has more than {_LARGEST} artifacts, executions or events; ask for fewer hops"
        raise failed_precondition(message)
