"""The variables that the service sets in a job's containers, and its ``$(NAME)`` in their arguments.

The names and shapes are those of the API's reference (``base_output_directory``) and of the service's pages on custom
training and distributed training.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from t5x_harness.google.vertex.jobs.replicas import Unit

# The TensorFlow task of each pool, by the pool's number.
_TENSORFLOW_TASKS = ("chief", "worker", "ps", "evaluator")
_REFERENCE = re.compile(r"\$\$(?=\()|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


@dataclasses.dataclass(frozen=True)
class JobPlace:
    """The parts of a job's name.

    Attributes:
      region: the region, such as ``us-central1``.
      job_id: the last part of the name.
    """

    project: str
    region: str
    job_id: str

    @classmethod
    def of(cls, name: str) -> JobPlace:
        _, project, _, region, _, job_id = name.split("/")
        return cls(project, region, job_id)


@dataclasses.dataclass(frozen=True)
class Trial:
    """A trial of a tuning job.

    Attributes:
      id: its number, from 1.
      job: the name of the tuning job.
    """

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


def trial_variables(trial: Trial, metric_file: Path) -> dict[str, str]:
    """Returns the further variables of a trial's containers."""
    return {"CLOUD_ML_TRIAL_ID": trial.id, "CLOUD_ML_HP_METRIC_FILE": str(metric_file)}


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
    """Replaces ``$(NAME)`` by variables, as containers do; unknown names stay, and ``$$(NAME)`` becomes ``$(NAME)``."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return [_REFERENCE.sub(value, word) for word in words]
