"""TPU VMs, queued resources and operations, in memory: their life from a request to their end."""

from __future__ import annotations

import datetime
import itertools
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from t5x_harness.google.tpu.checks import check_runtime, check_zone, config_of, slice_of, type_of
from t5x_harness.google.tpu.errors import TpuError
from t5x_harness.google.vertex.jobs.replicas import free_ports
from t5x_harness.slices.slice import Slice, get_slice

Json = dict[str, Any]

_GIVEN_ID = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_GIVEN = frozenset(
    "acceleratorType acceleratorConfig description runtimeVersion networkConfig networkConfigs cidrBlock "
    "serviceAccount schedulingConfig labels metadata tags dataDisks shieldedInstanceConfig bootDiskConfig "
    "autocheckpointEnabled".split()
)
_CHANGEABLE = frozenset(("description", "labels", "metadata", "tags", "dataDisks"))
_TYPE = "type.googleapis.com/google.cloud.tpu"
# Addresses that no machine has: https://www.rfc-editor.org/rfc/rfc2544 sets them apart.
_EXTERNAL, _INTERNAL = "198.18", "198.19"


class Worker:
    """One worker of a TPU VM.

    Attributes:
      node: the full name of its TPU VM.
      uid: of the TPU VM; no other has it, not even one of the same name after it. It is short, as folders are named so.
      addresses: the internal ones of all workers, in order.
      coordinator: where the workers' processes meet.
    """

    def __init__(self, node: Json, slice_: Slice, index: int) -> None:
        self.node: str = node["name"]
        self.uid: str = node["_uid"]
        self.slice = slice_
        self.index = index
        self.addresses = [endpoint["ipAddress"] for endpoint in node["networkEndpoints"]]
        self.coordinator: str = node["_coordinator"]
        self.state: str = node["state"]
        self.accelerator_type: str = node["acceleratorType"]

    @property
    def hostname(self) -> str:
        """As the machines call themselves: ``t1v-n-0a1b2c3d-w-0``."""
        return f"t1v-n-{self.uid}-w-{self.index}"


class Machines(Protocol):
    """What runs on TPU VMs."""

    def stop(self, uid: str) -> None:
        """Ends all processes of a TPU VM; its disks stay."""

    def end(self, uid: str) -> None:
        """Ends all processes of a TPU VM, and removes its disks."""


class TpuVms:
    """All TPU VMs of a session. Any thread may call it.

    Args:
      pending_seconds: how long a node is CREATING, and a queued resource PROVISIONING.
      queued_seconds: how long a queued resource waits before that.
      machines: ends what runs on a TPU VM that is stopped or deleted, by its uid.
    """

    def __init__(
        self,
        pending_seconds: float,
        queued_seconds: float,
        machines: Machines,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._pending, self._queued = pending_seconds, queued_seconds
        self._machines = machines
        self._clock = clock
        self._lock = threading.RLock()
        self._nodes: dict[str, Json] = {}
        self._queue: dict[str, Json] = {}
        self._operations: dict[str, Json] = {}
        self._addresses = itertools.count(1)
        self._numbers = itertools.count(random.randrange(1 << 31))

    def create_node(self, parent: str, node_id: str, given: Json) -> Json:
        """Makes a TPU VM; returns the operation."""
        with self._lock:
            node = self._add_node(parent, node_id, given, ready_at=self._clock() + self._pending)
            return self._operation(parent, node["name"], "create", node["_ready_at"], self._shown(node))

    def get_node(self, name: str) -> Json:
        with self._lock:
            return self._shown(self._node(name))

    def list_nodes(self, parent: str) -> list[Json]:
        with self._lock:
            return [self._shown(node) for node in _below(self._nodes, parent) if self._is_there(node)]

    def update_node(self, name: str, given: Json, mask: str) -> Json:
        """Changes the fields that a mask names; returns the operation."""
        fields = [_camel(path) for path in mask.split(",") if path]
        if not fields or (wrong := [field for field in fields if field.partition(".")[0] not in _CHANGEABLE]):
            known = ", ".join(sorted(_CHANGEABLE))
            what = f"{', '.join(wrong)} cannot be changed" if fields else "update_mask is required"
            raise TpuError("INVALID_ARGUMENT", f"{what}; these can: {known}")
        with self._lock:
            node = self._node(name)
            for field in fields:
                node.pop(field, None)
                if field in given:
                    node[field] = given[field]
            return self._operation(_parent(name), name, "update", 0, self._shown(node))

    def delete_node(self, name: str) -> Json:
        """Deletes a TPU VM, and ends what runs on it; returns the operation."""
        with self._lock:
            node = self._node(name)
            if owner := node.get("queuedResource"):
                message = f"{name} is of the queued resource {owner}: delete that one, with force"
                raise TpuError("FAILED_PRECONDITION", message)
            return self._delete(node)

    def start_or_stop(self, name: str, verb: str) -> Json:
        """Starts or stops a TPU VM of one host; returns the operation.

        Raises:
          TpuError: FAILED_PRECONDITION: it has several hosts, which cannot be stopped, or is not in the state for it.
        """
        with self._lock:
            node = self._node(name)
            state = self._shown(node)["state"]
            wanted = {"stop": "READY", "start": "STOPPED"}[verb]
            if len(node["networkEndpoints"]) > 1:
                raise TpuError("FAILED_PRECONDITION", f"{name} has several hosts: it cannot be {_done(verb)}")
            if state != wanted:
                raise TpuError("FAILED_PRECONDITION", f"{name} is {state}, not {wanted}: it cannot be {_done(verb)}")
            node["state"] = "STOPPED" if verb == "stop" else "READY"
            if verb == "stop":
                self._machines.stop(node["_uid"])
            return self._operation(_parent(name), name, verb, 0, self._shown(node))

    def worker_at(self, address: str) -> Worker | None:
        """Returns the worker that has an address, external or internal; None if no worker has it."""
        with self._lock:
            for node in self._nodes.values():
                for index, endpoint in enumerate(node["networkEndpoints"]):
                    if address in (endpoint["ipAddress"], endpoint.get("accessConfig", {}).get("externalIp")):
                        return Worker(self._shown(node, private=True), get_slice(node["_slice"]), index)
        return None

    def workers_of(self, name: str) -> list[Worker]:
        """Returns all workers of a TPU VM, in order."""
        with self._lock:
            node = self._shown(self._node(name), private=True)
        return [Worker(node, get_slice(node["_slice"]), at) for at in range(len(node["networkEndpoints"]))]

    def create_queued(self, parent: str, queued_id: str, given: Json) -> Json:
        """Makes a queued resource with its TPU VMs, which are there when it is active; returns the operation."""
        name = f"{parent}/queuedResources/{_checked(queued_id, 'queued_resource_id')}"
        with self._lock:
            if name in self._queue:
                raise TpuError("ALREADY_EXISTS", f"Resource '{name}' already exists")
            made = {**given, "name": name, "createTime": _time(self._clock())}
            specs = given.get("tpu", {}).get("nodeSpec") or []
            if not specs:
                raise TpuError("INVALID_ARGUMENT", "queued_resource.tpu.node_spec must be specified")
            provisioned = self._clock() + self._queued
            ready = provisioned + self._pending
            wanted = [each for spec in specs for each in _nodes_of(spec, queued_id)]
            for node_id, node in wanted:  # all of them, before there is any
                self._check(parent, node_id, node)
            made |= {"_provisioned_at": provisioned, "_ready_at": ready, "_nodes": []}
            for node_id, node in wanted:
                added = self._add_node(parent, node_id, node, ready_at=ready, from_=provisioned)
                added["queuedResource"] = name
                made["_nodes"].append(added["name"])
            self._queue[name] = made
            return self._operation(parent, name, "create", 0, self._shown_queued(made))

    def get_queued(self, name: str) -> Json:
        with self._lock:
            return self._shown_queued(self._queued_resource(name))

    def list_queued(self, parent: str) -> list[Json]:
        with self._lock:
            return [self._shown_queued(each) for each in _below(self._queue, parent)]

    def delete_queued(self, name: str, *, force: bool) -> Json:
        """Deletes a queued resource; with ``force`` an active one, too, with its TPU VMs. Returns the operation."""
        with self._lock:
            made = self._queued_resource(name)
            state = self._shown_queued(made)["state"]["state"]
            if state not in ("ACCEPTED", "FAILED", "SUSPENDED", "WAITING_FOR_RESOURCES") and not force:
                message = f"{name} is {state}, and its TPU VMs would go with it: delete it with force"
                raise TpuError("FAILED_PRECONDITION", message)
            for each in made["_nodes"]:
                if each in self._nodes:
                    self._delete(self._nodes[each])
            del self._queue[name]
            return self._operation(_parent(name), name, "delete", 0, {})

    def get_operation(self, name: str) -> Json:
        with self._lock:
            if name not in self._operations:
                raise _not_found(name)
            return self._shown_operation(self._operations[name])

    def list_operations(self, parent: str) -> list[Json]:
        with self._lock:
            return [self._shown_operation(each) for each in _below(self._operations, parent)]

    def reset(self) -> None:
        """Deletes everything, and ends what runs."""
        with self._lock:
            for node in self._nodes.values():
                self._machines.end(node["_uid"])
            self._nodes.clear()
            self._queue.clear()
            self._operations.clear()

    def _check(self, parent: str, node_id: str, given: Json) -> tuple[str, Slice]:
        zone = parent.rpartition("/")[2]
        check_zone(zone)
        name = f"{parent}/nodes/{_checked(node_id, 'node_id')}"
        if unknown := sorted(set(given) - _GIVEN):
            raise TpuError(
                "INVALID_ARGUMENT", f"Invalid JSON payload received. Unknown name \"{unknown[0]}\" at 'node'"
            )
        found = slice_of(given, zone)
        check_runtime(str(given.get("runtimeVersion") or ""), found)
        if name in self._nodes:
            raise TpuError("ALREADY_EXISTS", f"Resource '{name}' already exists")
        return name, found

    def _add_node(self, parent: str, node_id: str, given: Json, *, ready_at: float, from_: float = 0) -> Json:
        name, found = self._check(parent, node_id, given)
        network = {"network": "default", "subnetwork": "default", **given.get("networkConfig", {})}
        (port,) = free_ports(1)
        self._nodes[name] = node = {
            **given,
            "name": name,
            "id": str(random.randrange(10**18, 9 * 10**18)),
            "acceleratorType": type_of(found),
            "acceleratorConfig": config_of(found),
            "networkConfig": network,
            "createTime": _time(self._clock()),
            "health": "HEALTHY",
            "state": "READY",
            "networkEndpoints": [self._endpoint(network) for _ in range(found.hosts)],
            "_uid": f"{next(self._numbers):08x}",
            "_slice": found.name,
            "_coordinator": f"127.0.0.1:{port}",
            "_from": from_,
            "_ready_at": ready_at,
        }
        return node

    def _endpoint(self, network: Mapping[str, Any]) -> Json:
        number = next(self._addresses)
        place = f"{number >> 8 & 255}.{number & 255}"
        endpoint: Json = {"ipAddress": f"{_INTERNAL}.{place}", "port": 8470}
        if network.get("enableExternalIps"):
            endpoint["accessConfig"] = {"externalIp": f"{_EXTERNAL}.{place}"}
        return endpoint

    def _delete(self, node: Json) -> Json:
        del self._nodes[node["name"]]
        self._machines.end(node["_uid"])
        return self._operation(_parent(node["name"]), node["name"], "delete", 0, {})

    def _node(self, name: str) -> Json:
        node = self._nodes.get(name)
        if node is None or not self._is_there(node):
            raise _not_found(name)
        return node

    def _is_there(self, node: Json) -> bool:
        """Returns whether a node is there: one whose queued resource still waits is not."""
        waits_until: float = node["_from"]
        return self._clock() >= waits_until

    def _queued_resource(self, name: str) -> Json:
        if name not in self._queue:
            raise _not_found(name)
        return self._queue[name]

    def _shown(self, node: Json, *, private: bool = False) -> Json:
        shown = {key: value for key, value in node.items() if private or not key.startswith("_")}
        if self._clock() < node["_ready_at"]:
            shown["state"] = "CREATING"
        return shown

    def _shown_queued(self, made: Json) -> Json:
        now = self._clock()
        provisioning = "PROVISIONING" if now >= made["_provisioned_at"] else "WAITING_FOR_RESOURCES"
        state = "ACTIVE" if now >= made["_ready_at"] else provisioning
        return {**{key: value for key, value in made.items() if not key.startswith("_")}, "state": {"state": state}}

    def _operation(self, parent: str, target: str, verb: str, done_at: float, response: Json) -> Json:
        name = f"{parent}/operations/operation-{random.randrange(10**12, 10**13)}-{random.randrange(16**8):08x}"
        self._operations[name] = made = {
            "name": name,
            "metadata": {"createTime": _time(self._clock()), "target": target, "verb": verb},
            "_done_at": done_at,
            "_response": response,
        }
        return self._shown_operation(made)

    def _shown_operation(self, made: Json) -> Json:
        is_done = self._clock() >= made["_done_at"]
        response = made["_response"]
        if is_done and "state" in response and response["state"] == "CREATING":
            response = {**response, "state": "READY"}
        shown = {key: value for key, value in made.items() if not key.startswith("_")}
        return {**shown, "done": True, "response": response} if is_done else {**shown, "done": False}


def typed(message: Json, version: str) -> Json:
    """Returns an operation with the types that a version of the API has for what it carries."""
    kind = "QueuedResource" if "/queuedResources/" in message["metadata"]["target"] else "Node"
    prefix = f"{_TYPE}.{version}"
    metadata = {"@type": f"{prefix}.OperationMetadata", **message["metadata"], "apiVersion": version}
    found = {**message, "metadata": metadata}
    if "response" in message:
        response = message["response"]
        empty = {"@type": "type.googleapis.com/google.protobuf.Empty"}
        found["response"] = {"@type": f"{prefix}.{kind}", **response} if response else empty
    return found


def _nodes_of(spec: Json, queued_id: str) -> Iterator[tuple[str, Json]]:
    """Yields the ids and the nodes that one specification of a queued resource asks for."""
    several = spec.get("multisliceParams") or spec.get("multiNodeParams")
    node = spec.get("node", {})
    if not several:
        yield spec.get("nodeId", ""), node
        return
    prefix = several.get("nodeIdPrefix") or queued_id
    for number in range(int(several.get("nodeCount", 0))):
        yield f"{prefix}-{number}", node


def _below(kept: Mapping[str, Json], parent: str) -> list[Json]:
    pattern = re.compile(re.escape(parent).replace(r"/\-", "/[^/]+") + "/[a-zA-Z]+/[^/]+")
    return [value for name, value in sorted(kept.items()) if pattern.fullmatch(name)]


def _checked(given: str, field: str) -> str:
    if not _GIVEN_ID.fullmatch(given):
        raise TpuError("INVALID_ARGUMENT", f"{field} {given!r} does not match {_GIVEN_ID.pattern}")
    return given


def _parent(name: str) -> str:
    return name.rsplit("/", 2)[0]


def _done(verb: str) -> str:
    return {"start": "started", "stop": "stopped"}[verb]


def _camel(path: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), path)


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat().replace("+00:00", "Z")


def _not_found(name: str) -> TpuError:
    return TpuError("NOT_FOUND", f"Resource '{name}' was not found")
