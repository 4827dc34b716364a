"""TPU VMs, queued resources and operations, and their life cycles."""

import datetime
import random
import re
import time
from collections.abc import Callable

from t5x_harness.google.tpu.checks import (
    Json,
    check_node,
    check_runtime,
    check_types,
    check_zone,
    config_of,
    nodes_of,
    object_at,
    objects_at,
    slice_of,
    type_of,
)
from t5x_harness.google.tpu.kept import Kept, KeptInState, already_there, below, endpoint_of, not_found
from t5x_harness.google.tpu.workers import Worker, Workers
from t5x_harness.google.vertex.state import StateStore
from t5x_harness.google.vertex.wire.errors import failed_precondition, invalid_argument
from t5x_harness.slices.slice import get_slice

_MOST_OPERATIONS = 500

_GIVEN_ID = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_CHANGEABLE = frozenset(("description", "labels", "metadata", "tags", "dataDisks"))
_TYPE = "type.googleapis.com/google.cloud.tpu"


class TpuVms:
    """All TPU VMs of a state, which several servers may share. Any thread may call it.

    Every method may raise StateError.

    Args:
      pending_seconds: how long a node is CREATING, or a queued resource PROVISIONING.
      queued_seconds: how long a queued resource waits before that.
      workers: the workers of TPU VMs.
      state: the state, which stores everything.
      clock: returns the time in seconds since 1970.
    """

    def __init__(
        self,
        pending_seconds: float,
        queued_seconds: float,
        workers: Workers,
        state: StateStore,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._pending, self._queued = pending_seconds, queued_seconds
        self.workers = workers
        self._kept = KeptInState(state)
        self._clock = clock

    def create_node(self, parent: str, node_id: str, given: Json) -> Json:
        """Creates a TPU VM; returns the operation."""

        def create(kept: Kept) -> tuple[list[str], Json]:
            node = self._add_node(kept, parent, node_id, given, ready_at=self._clock() + self._pending)
            shown = self._shown(node)
            return [node["_folder"]], self._operation(kept, parent, node["name"], "create", node["_ready_at"], shown)

        return self._change(create, self.workers.begin)

    def get_node(self, name: str) -> Json:
        return self._shown(self._kept.read().node(name, self._clock()))

    def list_nodes(self, parent: str) -> list[Json]:
        now = self._clock()
        return [self._shown(node) for node in below(self._kept.read().nodes, parent) if now >= node["_from"]]

    def update_node(self, name: str, given: Json, mask: str) -> Json:
        """Changes the fields in a mask; returns the operation."""
        named = [re.sub(r"_([a-z])", lambda found: found[1].upper(), path) for path in mask.split(",") if path]
        if not named or (wrong := [field for field in named if field.partition(".")[0] not in _CHANGEABLE]):
            known = ", ".join(sorted(_CHANGEABLE))
            what = f"{', '.join(wrong)} cannot be changed" if named else "update_mask is required"
            raise invalid_argument(f"{what}; these can: {known}")

        check_types(given)

        def update(kept: Kept) -> Json:
            node = kept.node(name, self._clock())
            for field in named:
                node.pop(field, None)
                if field in given:
                    node[field] = given[field]
            return self._operation(kept, _parent(name), name, "update", 0, self._shown(node))

        return self._kept.change(update)

    def delete_node(self, name: str) -> Json:
        """Deletes a TPU VM and ends its processes; returns the operation."""

        def delete(kept: Kept) -> tuple[list[str], Json]:
            node = kept.node(name, self._clock())
            if owner := node.get("queuedResource"):
                raise failed_precondition(f"{name} belongs to the queued resource {owner}: delete that one with force")
            del kept.nodes[name]
            return [node["_folder"]], self._operation(kept, _parent(name), name, "delete", 0, {})

        return self._change(delete, self.workers.end)

    def start_or_stop(self, name: str, verb: str) -> Json:
        """Starts or stops a TPU VM of one host; returns the operation.

        Raises:
          ApiError: FAILED_PRECONDITION: it has several hosts, which cannot be stopped, or is in the wrong state.
        """

        def change(kept: Kept) -> tuple[list[str], Json]:
            node = kept.node(name, self._clock())
            state = self._shown(node)["state"]
            before, after = ("READY", "STOPPED") if verb == "stop" else ("STOPPED", "READY")
            done = {"stop": "stopped", "start": "started"}[verb]
            if len(node["networkEndpoints"]) > 1:
                raise failed_precondition(f"{name} has several hosts: it cannot be {done}")
            if state != before:
                raise failed_precondition(f"{name} is {state}, not {before}: it cannot be {done}")
            node["state"] = after
            stopped = [node["_folder"]] if verb == "stop" else []
            return stopped, self._operation(kept, _parent(name), name, verb, 0, self._shown(node))

        return self._change(change, self.workers.stop)

    def workers_of(self, name: str) -> list[Worker]:
        """Returns the workers of a TPU VM, in order."""
        node = self._kept.read().node(name, self._clock())
        return [self._worker(node, index) for index in range(len(node["networkEndpoints"]))]

    def worker_at(self, address: str) -> Worker | None:
        """Returns the worker with an internal or external address, or None."""
        for node in self._kept.read().nodes.values():
            for index, endpoint in enumerate(node["networkEndpoints"]):
                if address in (endpoint["ipAddress"], endpoint.get("accessConfig", {}).get("externalIp")):
                    return self._worker(node, index)
        return None

    def create_queued(self, parent: str, queued_id: str, given: Json) -> Json:
        """Creates a queued resource and its TPU VMs, which exist once its wait is over; returns the operation."""
        name = f"{parent}/queuedResources/{_checked(queued_id, 'queued_resource_id')}"
        specs = objects_at(object_at(given, "tpu"), "nodeSpec")
        if not specs:
            raise invalid_argument("queued_resource.tpu.node_spec must be specified")

        def create(kept: Kept) -> tuple[list[str], Json]:
            if name in kept.queue:
                raise already_there(name)
            now = self._clock()
            provisioned, ready = now + self._queued, now + self._queued + self._pending
            nodes = []
            for node_id, node in (each for spec in specs for each in nodes_of(spec, queued_id)):
                added = self._add_node(kept, parent, node_id, node, ready_at=ready, from_=provisioned)
                added["queuedResource"] = name
                nodes.append(added)
            private = {"_provisioned_at": provisioned, "_ready_at": ready, "_nodes": [node["name"] for node in nodes]}
            kept.queue[name] = made = {**given, "name": name, "createTime": _time(now), **private}
            operation = self._operation(kept, parent, name, "create", 0, self._shown_queued(made))
            return [node["_folder"] for node in nodes], operation

        return self._change(create, self.workers.begin)

    def get_queued(self, name: str) -> Json:
        return self._shown_queued(self._kept.read().queued(name))

    def list_queued(self, parent: str) -> list[Json]:
        return [self._shown_queued(each) for each in below(self._kept.read().queue, parent)]

    def delete_queued(self, name: str, *, force: bool) -> Json:
        """Deletes a queued resource; with ``force``, even an active one and its TPU VMs. Returns the operation."""

        def delete(kept: Kept) -> tuple[list[str], Json]:
            made = kept.queued(name)
            state = self._shown_queued(made)["state"]["state"]
            if state not in ("ACCEPTED", "FAILED", "SUSPENDED", "WAITING_FOR_RESOURCES") and not force:
                raise failed_precondition(f"{name} is {state}, and its TPU VMs would go with it: delete it with force")
            folders = [kept.nodes.pop(each)["_folder"] for each in made["_nodes"] if each in kept.nodes]
            del kept.queue[name]
            return folders, self._operation(kept, _parent(name), name, "delete", 0, {})

        return self._change(delete, self.workers.end)

    def get_operation(self, name: str) -> Json:
        operations = self._kept.read().operations
        if name not in operations:
            raise not_found(name)
        return self._shown_operation(operations[name])

    def list_operations(self, parent: str) -> list[Json]:
        return [self._shown_operation(each) for each in below(self._kept.read().operations, parent)]

    def folders(self) -> list[str]:
        """Returns the folders of all TPU VMs."""
        return [node["_folder"] for node in self._kept.read().nodes.values()]

    def reset(self) -> None:
        """Deletes everything, and ends all processes."""
        folders = self.folders()
        self._kept.delete()
        for folder in folders:
            self.workers.end(folder)

    def _change(self, change: Callable[[Kept], tuple[list[str], Json]], then: Callable[[str], None]) -> Json:
        """Makes a change that results in folders and an operation, then calls a function with each folder."""
        folders, operation = self._kept.change(change)
        for folder in folders:
            then(folder)
        return operation

    def _add_node(
        self, kept: Kept, parent: str, node_id: str, given: Json, *, ready_at: float, from_: float = 0
    ) -> Json:
        zone = parent.rpartition("/")[2]
        check_zone(zone)
        name = f"{parent}/nodes/{_checked(node_id, 'node_id')}"
        check_node(given)
        found = slice_of(given, zone)
        check_runtime(str(given.get("runtimeVersion") or ""), found)
        if name in kept.nodes:
            raise already_there(name)
        network = {"network": "default", "subnetwork": "default", **(given.get("networkConfig") or {})}
        addresses = kept.take_addresses(found.hosts)
        uid = f"{random.randrange(1 << 32):08x}"
        kept.nodes[name] = node = {
            **given,
            "name": name,
            "id": str(random.randrange(10**18, 9 * 10**18)),
            "acceleratorType": type_of(found),
            "acceleratorConfig": config_of(found),
            "networkConfig": network,
            "createTime": _time(self._clock()),
            "health": "HEALTHY",
            "state": "READY",
            "networkEndpoints": [endpoint_of(network, number) for number in addresses],
            "_addresses": addresses,
            "_folder": self.workers.folder(uid),
            "_slice": found.name,
            "_coordinator": kept.take_coordinator(),
            "_from": from_,
            "_ready_at": ready_at,
        }
        return node

    def _worker(self, node: Json, index: int) -> Worker:
        return Worker({**node, "state": self._shown(node)["state"]}, get_slice(node["_slice"]), index)

    def _shown(self, node: Json) -> Json:
        shown = _public(node)
        return {**shown, "state": "CREATING"} if self._clock() < node["_ready_at"] else shown

    def _shown_queued(self, made: Json) -> Json:
        now = self._clock()
        provisioning = "PROVISIONING" if now >= made["_provisioned_at"] else "WAITING_FOR_RESOURCES"
        return {**_public(made), "state": {"state": "ACTIVE" if now >= made["_ready_at"] else provisioning}}

    def _operation(self, kept: Kept, parent: str, target: str, verb: str, done_at: float, response: Json) -> Json:
        name = f"{parent}/operations/operation-{random.randrange(10**12, 10**13)}-{random.randrange(16**8):08x}"
        kept.operations[name] = made = {
            "name": name,
            "metadata": {"createTime": _time(self._clock()), "target": target, "verb": verb},
            "_done_at": done_at,
            "_response": response,
        }
        for old in list(kept.operations)[:-_MOST_OPERATIONS]:
            del kept.operations[old]
        return self._shown_operation(made)

    def _shown_operation(self, made: Json) -> Json:
        is_done = self._clock() >= made["_done_at"]
        response = made["_response"]
        if is_done and response.get("state") == "CREATING":
            response = {**response, "state": "READY"}
        return {**_public(made), "done": True, "response": response} if is_done else {**_public(made), "done": False}


def typed(message: Json, version: str) -> Json:
    """Returns an operation with the types of its contents in a version of the API."""
    kind = "QueuedResource" if "/queuedResources/" in message["metadata"]["target"] else "Node"
    prefix = f"{_TYPE}.{version}"
    metadata = {"@type": f"{prefix}.OperationMetadata", **message["metadata"], "apiVersion": version}
    found = {**message, "metadata": metadata}
    if "response" in message:
        response = message["response"]
        empty = {"@type": "type.googleapis.com/google.protobuf.Empty"}
        found["response"] = {"@type": f"{prefix}.{kind}", **response} if response else empty
    return found


def _public(kept: Json) -> Json:
    return {key: value for key, value in kept.items() if not key.startswith("_")}


def _checked(given: str, field: str) -> str:
    if not _GIVEN_ID.fullmatch(given):
        raise invalid_argument(f"{field} {given!r} does not match {_GIVEN_ID.pattern}")
    return given


def _parent(name: str) -> str:
    return name.rsplit("/", 2)[0]


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat().replace("+00:00", "Z")
