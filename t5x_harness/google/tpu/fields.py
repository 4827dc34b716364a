"""The fields of requests about TPU VMs: those of nodes with their types, and the nodes in queued resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from t5x_harness.google.vertex.wire.errors import ApiError, invalid_argument

Json = dict[str, Any]

_MOST_NODES = 256
_FIELDS: Mapping[str, type] = MappingProxyType(
    {
        **dict.fromkeys(("acceleratorType", "description", "runtimeVersion", "cidrBlock"), str),
        **dict.fromkeys(("acceleratorConfig", "networkConfig", "serviceAccount", "schedulingConfig", "labels"), dict),
        **dict.fromkeys(("metadata", "shieldedInstanceConfig", "bootDiskConfig"), dict),
        **dict.fromkeys(("networkConfigs", "tags", "dataDisks"), list),
        "autocheckpointEnabled": bool,
    }
)


def check_node(given: Json) -> None:
    """Raises ApiError for a field that a new node cannot have, or that has the wrong type."""
    if unknown := sorted(set(given) - set(_FIELDS)):
        raise invalid_argument(f"Invalid JSON payload received. Unknown name \"{unknown[0]}\" at 'node'")
    check_types(given)


def check_types(given: Json) -> None:
    """Raises ApiError for a field of a node that has the wrong type."""
    for name, value in given.items():
        if value is not None and not isinstance(value, _FIELDS.get(name, object)):
            raise _of_another_type(name, value)


def nodes_of(spec: Json, queued_id: str) -> Iterator[tuple[str, Json]]:
    """Yields the ids and nodes of one specification in a queued resource.

    Raises:
      ApiError: the specification is not valid, or is for too many nodes.
    """
    several = object_at(spec, "multisliceParams") or object_at(spec, "multiNodeParams")
    node = object_at(spec, "node")
    if not several:
        yield str(spec.get("nodeId", "")), node
        return
    prefix, count = several.get("nodeIdPrefix") or queued_id, several.get("nodeCount", 0)
    if isinstance(count, str) and count.isdecimal():  # which protobuf's JSON allows
        count = int(count)
    if not isinstance(count, int) or not 0 < count <= _MOST_NODES:
        raise invalid_argument(f"node_count {count!r} is not from 1 to {_MOST_NODES}, the most here")
    for number in range(count):
        yield f"{prefix}-{number}", node


def object_at(given: Json, name: str) -> Json:
    """Returns an object in a request, or an empty one; raises ApiError for any other value."""
    value = given.get(name) or {}
    if not isinstance(value, dict):
        raise _of_another_type(name, value)
    return value


def objects_at(given: Json, name: str) -> list[Json]:
    """Returns a list of objects in a request, or an empty one; raises ApiError for any other value."""
    value = given.get(name) or []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise _of_another_type(name, value)
    return value


def _of_another_type(name: str, value: object) -> ApiError:
    return invalid_argument(f"Invalid JSON payload received. Invalid value at '{name}': {value!r:.100}")
