"""Lineage: events between executions and artifacts, and the graphs that they form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.cloud.aiplatform_v1.types import event as event_types
from google.cloud.aiplatform_v1.types import lineage_subgraph
from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.kinds import ResourceKind
from t5x_harness.google.vertex.messages.matching import matcher
from t5x_harness.google.vertex.metadata import links
from t5x_harness.google.vertex.metadata.kinds import ARTIFACT, CONTEXT, EXECUTION, get_node
from t5x_harness.google.vertex.services import ApiCall, Services
from t5x_harness.google.vertex.wire.errors import failed_precondition, invalid_field

_LARGEST = 1000
_Subgraph = lineage_subgraph.LineageSubgraph.pb()
_NO_TYPE = event_types.Event.Type.TYPE_UNSPECIFIED


def add_events(call: ApiCall) -> Message:
    """Records which artifacts an execution read or made. The first event of an artifact stays."""
    execution = get_node(call.services, call.request.execution, EXECUTION)
    for number, event in enumerate(call.request.events):
        if event.type_ == _NO_TYPE:
            raise invalid_field(f"events[{number}].type", "it has to be INPUT or OUTPUT")
        event.artifact = get_node(call.services, event.artifact, ARTIFACT).name
    for event in call.request.events:
        event.execution = execution.name
        event.event_time.FromNanoseconds(call.services.clock.now())
        links.add_event(call.services, event)
    return call.rpc.response()


def query_execution(call: ApiCall) -> Message:
    """Returns an execution with its artifacts and the events between them."""
    execution = get_node(call.services, call.request.execution, EXECUTION)
    events = links.events_of(call.services, execution.name)
    return _subgraph(call.services, {event.artifact for event in events}, {execution.name}, events)


def query_context(call: ApiCall) -> Message:
    """Returns the artifacts and executions of a context, and the events between them."""
    context = get_node(call.services, call.request.context, CONTEXT)
    members = links.members(call.services, context.name)
    artifacts = {name for name in members if f"/{ARTIFACT.collection}/" in name}
    executions = members - artifacts
    events = [e for name in executions for e in links.events_of(call.services, name) if e.artifact in artifacts]
    return _subgraph(call.services, artifacts, executions, events)


def query_artifact(call: ApiCall) -> Message:
    """Returns what an artifact was made from and what was made from it, within a number of hops.

    A hop is a step along an event, from an artifact to an execution or back. A message cannot distinguish 0 hops from
    no number, so both stand for all.
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
            newest = {e for name in newest for e in links.executions_of(call.services, name)} - executions
            executions |= newest
        else:
            reached = {e.artifact for name in newest for e in links.events_of(call.services, name)} - artifacts
            newest = {node.name for node in _nodes(call.services, reached, ARTIFACT) if matches(node)}
            artifacts |= newest
        _check_size(artifacts, executions)
    events = [e for name in executions for e in links.events_of(call.services, name) if e.artifact in artifacts]
    return _subgraph(call.services, artifacts, executions, events)


def _subgraph(services: Services, artifacts: Iterable[str], executions: Iterable[str], events: list[Any]) -> Message:
    nodes, makers = _nodes(services, artifacts, ARTIFACT), _nodes(services, executions, EXECUTION)
    _check_size(nodes, makers, events)
    ordered = sorted(events, key=lambda event: event.event_time.ToNanoseconds())
    return _Subgraph(artifacts=nodes, executions=makers, events=ordered)


def _nodes(services: Services, names: Iterable[str], kind: ResourceKind) -> list[Any]:
    """Returns the nodes with these names, except those that were deleted meanwhile."""
    found = services.state.get_all(sorted(names))
    return [kind.message.FromString(data) for data in found if data is not None]


def _check_size(*parts: Any) -> None:
    if any(len(part) > _LARGEST for part in parts):
        message = f"The lineage has more than {_LARGEST} artifacts, executions or events; ask for fewer hops"
        raise failed_precondition(message)
