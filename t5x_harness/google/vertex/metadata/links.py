"""The three kinds of nodes of a metadata store, and the links between them: memberships, parents and children, events.

A link is kept at both ends as a part of the node there, so that either end finds it without a search. The parents of a
context are in its message.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from google.cloud.aiplatform_v1.types import event as event_types

from t5x_harness.google.vertex.messages.names import KINDS, ResourceKind, collection_of
from t5x_harness.google.vertex.services import ApiCall, Services, aspect_key
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


MEMBERS, CONTEXTS, CHILDREN, EXECUTIONS = "members", "contexts", "children", "executions"
"""The artifacts and executions in a context, the contexts of these, contexts in one, and executions of an artifact."""

Event = event_types.Event.pb()


def add_member(services: Services, context: str, node: str) -> None:
    """Adds an artifact or an execution to a context. It may be in the context already."""
    services.state.add(aspect_key(node, CONTEXTS), context)
    services.state.add(aspect_key(context, MEMBERS), node)


def linked(services: Services, node: str, which: str) -> set[str]:
    """Returns the names of the nodes that a node is linked with; ``which`` is one of :data:`MEMBERS` and so on."""
    return services.state.members(aspect_key(node, which))


def add_child(services: Services, parent: str, child: str) -> None:
    """Makes a context a child of another. It may be a child already.

    The etags and times of both stay, so that a client that has read a run's context can still write it after the run
    was added to its experiment.
    """
    _change_parents(services, child, lambda parents: parents if parent in parents else [*parents, parent])
    services.state.add(aspect_key(parent, CHILDREN), child)


def remove_child(services: Services, parent: str, child: str) -> None:
    """Removes a context from the children of another. It may not be among them."""
    _change_parents(services, child, lambda parents: [name for name in parents if name != parent])
    services.state.discard(aspect_key(parent, CHILDREN), child)


def add_event(services: Services, event: Any) -> None:
    """Adds an event between an execution and an artifact, if it is the first between the two."""
    services.state.add(aspect_key(event.artifact, EXECUTIONS), event.execution)
    services.state.create(_event_key(event.execution, event.artifact), event.SerializeToString())


def events_of(services: Services, execution: str) -> list[Any]:
    """Returns the events of an execution, in the order of their times."""
    found = services.state.get_all(services.state.keys(_event_key(execution, "")))
    events = [Event.FromString(data) for data in found if data is not None]
    return sorted(events, key=lambda event: event.event_time.ToNanoseconds())


@contextlib.contextmanager
def cutting(services: Services, node: Any) -> Iterator[None]:
    """Removes the far ends of the links of a node that is deleted in the block. The near ends are parts of the node.

    Args:
      services: have the state.
      node: the node's message.
    """
    name, discard = node.name, services.state.discard
    holders, inside, below, executions = (
        linked(services, name, which) for which in (CONTEXTS, MEMBERS, CHILDREN, EXECUTIONS)
    )
    events = events_of(services, name)
    yield
    for context in holders:
        discard(aspect_key(context, MEMBERS), name)
    for member in inside:
        discard(aspect_key(member, CONTEXTS), name)
    for parent in getattr(node, "parent_contexts", ()):
        discard(aspect_key(parent, CHILDREN), name)
    for child in below:
        remove_child(services, name, child)
    for execution in executions:
        services.state.delete(_event_key(execution, name))
    for event in events:
        discard(aspect_key(event.artifact, EXECUTIONS), name)


def _change_parents(services: Services, child: str, change: Callable[[Sequence[str]], Sequence[str]]) -> None:
    def changed(data: bytes) -> bytes:
        context: Any = CONTEXT.message.FromString(data)
        context.parent_contexts[:] = change(list(context.parent_contexts))
        return bytes(context.SerializeToString())

    services.state.update(child, changed)


def _event_key(execution: str, artifact: str) -> str:
    return aspect_key(execution, f"event/{artifact}")
