"""The replicas of a job: the processes that each pool becomes, their names, and the variables that the service sets.

The names and forms of the variables follow the API's reference (``base_output_directory``) and the service's pages on
custom training and distributed training.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict

from t5x_harness.google.vertex.validation.machine_types import slice_of
from t5x_harness.slices.slice import Slice


@dataclasses.dataclass(frozen=True)
class Unit:
    """A process of a job: a replica, or one of the ``hosts`` of a replica that is a TPU slice with several hosts."""

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
        """The unit's own name: the name of its replica and, for a host of a slice, a dot and the host's number."""
        return self.replica if self.hosts == 1 else f"{self.replica}.{self.host}"


def replica_of(unit: str) -> str:
    """Returns the name of the replica to which the unit with this name belongs."""
    return unit.partition(".")[0]


@dataclasses.dataclass(frozen=True)
class WorkerPool:
    """A worker pool.

    Attributes:
      number: its place in the spec.
      slice: the TPU slice that each of its replicas is; None for other machines.
      hosts: the number of processes that each replica has.
    """

    number: int
    spec: Any
    slice: Slice | None
    hosts: int

    @property
    def replicas(self) -> int:
        """The number of replicas: one if the spec does not set it, and zero if the pool is empty."""
        return max(1, int(self.spec.replica_count)) if self.spec.WhichOneof("task") else 0

    def units(self) -> Iterator[Unit]:
        for index in range(self.replicas):
            for host in range(self.hosts):
                yield Unit(self.number, index, host, self.hosts)


def pools_of(spec: Any, most_hosts: int) -> tuple[WorkerPool, ...]:
    """Returns the pools of a ``CustomJobSpec``, including the empty ones.

    Args:
      most_hosts: the largest number of hosts of a slice for which each host is a process.
    """
    pools = []
    for number, pool in enumerate(spec.worker_pool_specs):
        found = slice_of(pool.machine_spec)
        pools.append(WorkerPool(number, pool, found, found.hosts if found and found.hosts <= most_hosts else 1))
    return tuple(pools)


# The TensorFlow task of each pool, by the pool's number.
_TENSORFLOW_TASKS = ("chief", "worker", "ps", "evaluator")
_REFERENCE = re.compile(r"\$\$(?=\()|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


@dataclasses.dataclass(frozen=True)
class JobPlace:
    """The parts of a job's name: the project, the region, such as ``us-central1``, and the job's own id."""

    project: str
    region: str
    job_id: str

    @classmethod
    def of(cls, name: str) -> JobPlace:
        _, project, _, region, _, job_id = name.split("/")
        return cls(project, region, job_id)


@dataclasses.dataclass(frozen=True)
class Trial:
    """A trial of a tuning job: its number, from 1, and the job's name."""

    id: str
    job: str


def job_variables(place: JobPlace, spec: Any) -> dict[str, str]:
    """Returns the variables that all containers of a job have."""
    variables = {
        "CLOUD_ML_PROJECT_ID": place.project,
        "CLOUD_ML_REGION": place.region,
        "CLOUD_ML_JOB_ID": place.job_id,
    }
    if base := spec.base_output_directory.output_uri_prefix.rstrip("/"):
        variables |= {
            "AIP_MODEL_DIR": f"{base}/model/",
            "AIP_CHECKPOINT_DIR": f"{base}/checkpoints/",
            "AIP_TENSORBOARD_LOG_DIR": f"{base}/logs/",
        }
    if spec.tensorboard:
        variables["AIP_TENSORBOARD_RESOURCE_NAME"] = spec.tensorboard
    experiment = spec.experiment.rpartition("/")[2]
    if experiment:
        variables["AIP_EXPERIMENT_NAME"] = experiment
    if run := spec.experiment_run.rpartition("/")[2]:
        # The name of a run's context begins with the experiment's; clients want the run's own name.
        variables["AIP_EXPERIMENT_RUN_NAME"] = run.removeprefix(f"{experiment}-") if experiment else run
    return variables


def cluster_variables(
    spec: Any, addresses: Mapping[int, Sequence[str]], unit: Unit, trial: Trial | None = None
) -> dict[str, str]:
    """Returns CLUSTER_SPEC and TF_CONFIG of one replica.

    Args:
      addresses: ``HOST:PORT`` of each replica, by the numbers of pools that have replicas.
    """
    job = MessageToDict(spec)

    def described(names: Mapping[int, str]) -> str:
        task = {"type": names[unit.pool], "index": unit.index, **({"trial": trial.id} if trial else {})}
        cluster = {names[pool]: list(hosts) for pool, hosts in addresses.items() if pool in names}
        return json.dumps({"cluster": cluster, "environment": "cloud", "task": task, "job": job})

    variables = {"CLUSTER_SPEC": described({pool: f"workerpool{pool}" for pool in addresses})}
    if unit.pool < len(_TENSORFLOW_TASKS):
        variables["TF_CONFIG"] = described(dict(enumerate(_TENSORFLOW_TASKS)))
    return variables


def expand(words: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Replaces ``$(NAME)`` with variables, as containers do. Unknown names stay; ``$$(NAME)`` becomes ``$(NAME)``."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return [_REFERENCE.sub(value, word) for word in words]
