"""All TPU VMs, queued resources and operations: one value in the state, so that each change is one write."""

import contextlib
import dataclasses
import json
import random
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from t5x_harness.google.product import PRODUCT
from t5x_harness.google.tpu.checks import Json
from t5x_harness.google.vertex.state import StateStore
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode
from t5x_harness.system.network_filter import free_ports

Result = TypeVar("Result")

_KEY = "tpu"
# Addresses that no machine has, because https://www.rfc-editor.org/rfc/rfc2544 reserves them.
_EXTERNAL, _INTERNAL = "198.18", "198.19"
_ADDRESSES = 1 << 16
_FIRST_PORT, _TRIES = 16384, 100


@dataclasses.dataclass
class Kept:
    """All TPU VMs, queued resources and operations by name.

    Attributes:
      nodes: the TPU VMs.
      queue: the queued resources.
      operations: the operations.
      addresses: the number of the last address that was assigned to a worker.
    """

    nodes: dict[str, Json] = dataclasses.field(default_factory=dict)
    queue: dict[str, Json] = dataclasses.field(default_factory=dict)
    operations: dict[str, Json] = dataclasses.field(default_factory=dict)
    addresses: int = 0

    def node(self, name: str, now: float) -> Json:
        """Returns a node. A node does not exist while its queued resource is waiting."""
        node = self.nodes.get(name)
        if node is None or now < node["_from"]:
            raise not_found(name)
        return node

    def queued(self, name: str) -> Json:
        if name not in self.queue:
            raise not_found(name)
        return self.queue[name]

    def take_addresses(self, count: int) -> list[int]:
        """Returns the numbers of free addresses. A number is reused as late as possible."""
        taken = {number for node in self.nodes.values() for number in node.get("_addresses", ())}
        if len(taken) + count > _ADDRESSES:
            raise ApiError(
                StatusCode.RESOURCE_EXHAUSTED, f"{PRODUCT} has {_ADDRESSES} addresses for workers, and all are in use"
            )
        found: list[int] = []
        while len(found) < count:
            self.addresses = (self.addresses + 1) % _ADDRESSES
            if self.addresses not in taken:
                found.append(self.addresses)
        return found

    def take_coordinator(self) -> str:
        """Returns an address of this machine at which the workers of a new TPU VM can meet, perhaps days later.

        No program listens there, and the kernel does not assign the port to any program before that.
        """
        taken = {node["_coordinator"] for node in self.nodes.values()}
        assigned = 32768  # Linux's default for the first port that the kernel assigns on its own
        with contextlib.suppress(OSError, ValueError):
            assigned = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        ports = range(_FIRST_PORT, max(_FIRST_PORT, assigned))
        for port in random.sample(ports, min(len(ports), _TRIES)):
            address = f"127.0.0.1:{port}"
            with contextlib.suppress(OSError), socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
                if address not in taken:
                    return address
        return f"127.0.0.1:{free_ports(1)[0]}"

    def to_bytes(self) -> bytes:
        return json.dumps(vars(self)).encode()


class KeptInState:
    """The value in a state that several servers may change. Any thread may call it.

    Every method may raise StateError.
    """

    def __init__(self, state: StateStore) -> None:
        self._state = state

    def read(self) -> Kept:
        value = self._state.get(_KEY)
        return Kept(**json.loads(value)) if value else Kept()

    def change(self, change: Callable[[Kept], Result]) -> Result:
        """Changes everything in one step. ``change`` is called again after a concurrent change."""
        results: list[Result] = []

        def apply(value: bytes) -> bytes:
            kept = Kept(**json.loads(value))
            results[:] = [change(kept)]
            return kept.to_bytes()

        while not results:  # otherwise it was deleted between these two calls
            self._state.create(_KEY, Kept().to_bytes())
            self._state.update(_KEY, apply)
        return results[0]

    def delete(self) -> None:
        self._state.delete(_KEY)


def endpoint_of(network: Mapping[str, Any], number: int) -> Json:
    """Returns the addresses of a worker, with an external one if the network's configuration asks for it."""
    place = f"{number >> 8 & 255}.{number & 255}"
    endpoint: Json = {"ipAddress": f"{_INTERNAL}.{place}", "port": 8470}
    if network.get("enableExternalIps"):
        endpoint["accessConfig"] = {"externalIp": f"{_EXTERNAL}.{place}"}
    return endpoint


def below(kept: Mapping[str, Json], parent: str) -> list[Json]:
    """Returns the children of a parent, in which ``-`` means any project or location."""
    pattern = re.compile(re.escape(parent).replace(r"/\-", "/[^/]+") + "/[a-zA-Z]+/[^/]+")
    return [value for name, value in sorted(kept.items()) if pattern.fullmatch(name)]


def already_there(name: str) -> ApiError:
    return ApiError(StatusCode.ALREADY_EXISTS, f"Resource '{name}' already exists")


def not_found(name: str) -> ApiError:
    return ApiError(StatusCode.NOT_FOUND, f"Resource '{name}' was not found")
