"""The replica of a job that this process runs as, according to the variable CLUSTER_SPEC."""

from __future__ import annotations

import dataclasses
import json
import os

__all__ = ["Replica"]


@dataclasses.dataclass(frozen=True)
class Replica:
    """One of the processes that train together.

    Attributes:
      rank: its number across all worker pools; 0 is the primary replica, in workerpool0.
      count: the number of replicas.
    """

    rank: int
    count: int

    @classmethod
    def from_environment(cls) -> Replica:
        """Reads CLUSTER_SPEC; without it, the job has one replica, as when the trainer runs here."""
        spec = json.loads(os.environ.get("CLUSTER_SPEC", "{}"))
        cluster = spec.get("cluster", {})
        if not cluster:
            return cls(rank=0, count=1)
        members = [(pool, index) for pool in sorted(cluster) for index in range(len(cluster[pool]))]
        task = spec["task"]
        return cls(rank=members.index((task["type"], int(task["index"]))), count=len(members))

    @property
    def is_primary(self) -> bool:
        """Whether it is the primary replica, which combines the results."""
        return self.rank == 0
