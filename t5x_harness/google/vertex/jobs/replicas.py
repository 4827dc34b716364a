"""The replicas of a job: how many processes each pool of its spec becomes, and what they are called."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
from collections.abc import Iterator
from typing import Any

from t5x_harness.google.vertex.validation.machine_types import slice_of
from t5x_harness.slices.slice import Slice


def free_ports(count: int) -> list[int]:
    """Returns so many different ports of this machine on which no program listens.

    They are not reserved: the program that they are for binds them a moment later.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


@dataclasses.dataclass(frozen=True)
class Unit:
    """A process of a job: a replica, or one host of a replica that is a TPU slice with several hosts.

    Attributes:
      hosts: how many processes the replica has.
    """

    pool: int
    index: int
    host: int = 0
    hosts: int = 1

    @property
    def replica(self) -> str:
        """The service's name for its replica, such as ``workerpool0-0``."""
        return f"workerpool{self.pool}-{self.index}"

    @property
    def name(self) -> str:
        """Its own name: the replica's, and for a host of a slice a dot and the host's number."""
        return self.replica if self.hosts == 1 else f"{self.replica}.{self.host}"


def replica_of(unit: str) -> str:
    """Returns the name of the replica of a unit, by the unit's name."""
    return unit.partition(".")[0]


def host_of(unit: str) -> str:
    """Returns the number of a slice's host; empty for a unit that is a whole replica."""
    return unit.partition(".")[2]


@dataclasses.dataclass(frozen=True)
class WorkerPool:
    """A worker pool.

    Attributes:
      number: its place in the spec.
      slice: the TPU slice that each of its replicas is; None for other machines.
      most_hosts: the largest number of hosts of a slice for which each host is a process.
    """

    number: int
    spec: Any
    slice: Slice | None
    most_hosts: int

    @property
    def replicas(self) -> int:
        """How many there are: one if the spec does not say, and none if it leaves the pool empty."""
        return max(1, int(self.spec.replica_count)) if self.spec.WhichOneof("task") else 0

    @property
    def hosts(self) -> int:
        """How many processes each replica has."""
        return self.slice.hosts if self.slice is not None and self.slice.hosts <= self.most_hosts else 1

    def units(self) -> Iterator[Unit]:
        for index in range(self.replicas):
            for host in range(self.hosts):
                yield Unit(self.number, index, host, self.hosts)


def pools_of(spec: Any, most_hosts: int) -> tuple[WorkerPool, ...]:
    """Returns the pools of a ``CustomJobSpec``, including the empty ones.

    Args:
      most_hosts: the largest number of hosts of a slice for which each host is a process.
    """
    return tuple(
        WorkerPool(number, pool, slice_of(pool.machine_spec), most_hosts)
        for number, pool in enumerate(spec.worker_pool_specs)
    )
