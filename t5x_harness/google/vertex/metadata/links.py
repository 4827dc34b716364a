"""What connects the nodes of a metadata store: memberships in contexts, parents and children, events.

A connection is kept at both ends, as something that belongs to the node there, so that either end finds it without
looking through the store. What a context's message tells of its parents is kept by the message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from google.cloud.aiplatform_v1.types import event as event_types

from t5x_harness.google.vertex.metadata.kinds import CONTEXT
from t5x_harness.google.vertex.resources import aspect_key
from t5x_harness.google.vertex.services import Services

_MEMBERS, _CONTEXTS, _CHILDREN, _EXECUTIONS = "members", "contexts", "children", "executions"

Event = event_types.Event.pb()


def add_member(services: Services, context: str, node: str) -> None:
    """Puts an artifact or an execution into a context; it may be there."""
    services.state.add(aspect_key(node, _CONTEXTS), context)
    services.state.add(aspect_key(context, _MEMBERS), node)


def members(services: Services, context: str) -> set[str]:
    """The names of the artifacts and executions of a context."""
    return services.state.members(aspect_key(context, _MEMBERS))


def contexts_of(services: Services, node: str) -> set[str]:
    """The names of the contexts that an artifact or an execution is in."""
    return services.state.members(aspect_key(node, _CONTEXTS))


def add_child(services: Services, parent: str, child: str) -> None:
    """Makes a context the child of another; it may be.

    Neither has a new etag or time by it: who holds a run's context can still write it when the run is put into its
    experiment.
    """
    _change_parents(services, child, lambda parents: parents if parent in parents else [*parents, parent])
    services.state.add(aspect_key(parent, _CHILDREN), child)


def remove_child(services: Services, parent: str, child: str) -> None:
    """Makes a context the child of another no longer; it may be none."""
    _change_parents(services, child, lambda parents: [name for name in parents if name != parent])
    services.state.discard(aspect_key(parent, _CHILDREN), child)


def children(services: Services, context: str) -> set[str]:
    """The names of the contexts that have a context as parent."""
    return services.state.members(aspect_key(context, _CHILDREN))


def add_event(services: Services, event: Any) -> None:
    """Keeps an event between an execution and an artifact, if it is the first between the two."""
    services.state.add(aspect_key(event.artifact, _EXECUTIONS), event.execution)
    services.state.create(_event_key(event.execution, event.artifact), event.SerializeToString())


def events_of(services: Services, execution: str) -> list[Any]:
    """The events of an execution, in the order of their times."""
    found = services.state.get_all(services.state.keys(_event_key(execution, "")))
    events = [Event.FromString(data) for data in found if data is not None]
    return sorted(events, key=lambda event: event.event_time.ToNanoseconds())


def executions_of(services: Services, artifact: str) -> set[str]:
    """The names of the executions that have an event with an artifact."""
    return services.state.members(aspect_key(artifact, _EXECUTIONS))


@dataclasses.dataclass(frozen=True)
class Connections:
    """The names of all nodes that a node is connected with; most are empty for most kinds.

    Attributes:
      executions: that an artifact has events with.
      artifacts: that an execution has events with.
    """

    contexts: frozenset[str]
    members: frozenset[str]
    parents: frozenset[str]
    children: frozenset[str]
    executions: frozenset[str]
    artifacts: frozenset[str]


def connections_of(services: Services, node: Any) -> Connections:
    """Reads the connections of a node, given as its message."""
    return Connections(
        contexts=frozenset(contexts_of(services, node.name)),
        members=frozenset(members(services, node.name)),
        parents=frozenset(getattr(node, "parent_contexts", ())),
        children=frozenset(children(services, node.name)),
        executions=frozenset(executions_of(services, node.name)),
        artifacts=frozenset(event.artifact for event in events_of(services, node.name)),
    )


def cut(services: Services, name: str, connections: Connections) -> None:
    """Removes the far ends of a deleted node's connections; the near ones went with it."""
    for context in connections.contexts:
        services.state.discard(aspect_key(context, _MEMBERS), name)
    for member in connections.members:
        services.state.discard(aspect_key(member, _CONTEXTS), name)
    for parent in connections.parents:
        services.state.discard(aspect_key(parent, _CHILDREN), name)
    for child in connections.children:
        remove_child(services, name, child)
    for execution in connections.executions:
        services.state.delete(_event_key(execution, name))
    for artifact in connections.artifacts:
        services.state.discard(aspect_key(artifact, _EXECUTIONS), name)


def _change_parents(services: Services, child: str, change: Callable[[Sequence[str]], Sequence[str]]) -> None:
    def changed(data: bytes) -> bytes:
        context: Any = CONTEXT.message.FromString(data)
        context.parent_contexts[:] = change(list(context.parent_contexts))
        kept: bytes = context.SerializeToString()
        return kept

    services.state.update(child, changed)


def _event_key(execution: str, artifact: str) -> str:
    return aspect_key(execution, f"event/{artifact}")
