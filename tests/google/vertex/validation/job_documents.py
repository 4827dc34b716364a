"""Jobs as documents: a generator of valid ones, and examples of them."""

import copy
import dataclasses
from typing import Any, TypeAlias

from google.cloud.aiplatform_v1.types import CustomJob, HyperparameterTuningJob
from google.protobuf import json_format
from hypothesis import strategies as st

from t5x_harness.google.vertex.validation.machine_types import cloud_tpus, machine_types
from t5x_harness.slices.slice import slice_names

Document: TypeAlias = dict[str, Any]

PROJECT = "projects/my-project/locations/us-central1"
IMAGE = "us-docker.pkg.dev/my-project/images/t5x:1"
TENSORBOARD = {
    "tensorboard": f"{PROJECT}/tensorboards/7",
    "service_account": "trainer@my-project.iam.gserviceaccount.com",
    "base_output_directory": {"output_uri_prefix": "gs://my-bucket/run"},
}
_GENERATION_REGION = {"v5e": "us-west4", "v6e": "us-east5"}  # all others are in us-central1

CONTAINER: Document = {"image_uri": IMAGE, "args": ["--run_mode=train"]}
PACKAGE: Document = {
    "executor_image_uri": "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-14.py310:latest",
    "package_uris": ["gs://my-bucket/trainer-0.1.tar.gz"],
    "python_module": "trainer.task",
}

_words = st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True)


@dataclasses.dataclass(frozen=True)
class Job:
    """A job's document, and the region to which the job is sent."""

    document: Document
    location: str
    tpu: str | None
    tunes: bool = False

    @property
    def message(self) -> Any:
        """The SDK's protobuf message."""
        kind = HyperparameterTuningJob if self.tunes else CustomJob
        return json_format.ParseDict(self.document, kind.pb()())

    @property
    def spec_field(self) -> str:
        return "trial_job_spec" if self.tunes else "job_spec"

    @property
    def spec(self) -> Document:
        return self.document[self.spec_field]

    @property
    def pool(self) -> Document:
        """The first worker pool."""
        return self.spec["worker_pool_specs"][0]

    @property
    def machine(self) -> Document:
        return self.pool["machine_spec"]


def _region_of(tpu: str | None) -> str:
    return _GENERATION_REGION.get(tpu or "", "us-central1")


@st.composite
def _machines(draw: st.DrawFn) -> tuple[Document, str | None]:
    """Draws a machine spec, and returns it with its TPU generation."""
    machine = draw(st.sampled_from(sorted(machine_types().values(), key=lambda m: m.name)))
    spec: Document = {"machine_type": machine.name}
    if machine.name == "cloud-tpu":
        accelerator, about = draw(st.sampled_from(sorted(cloud_tpus().items())))
        sizes = [name.split("-")[1] for name in slice_names() if name.startswith(f"{about.generation}-")]
        count = int(draw(st.sampled_from(sizes)))
        return {**spec, "accelerator_type": accelerator, "accelerator_count": count}, about.generation
    if machine.topologies:
        return {**spec, "tpu_topology": draw(st.sampled_from(machine.topologies))}, machine.generation
    if machine.counts and not (machine.bare and draw(st.booleans())):
        accelerator = draw(st.sampled_from(sorted(machine.counts)))
        count = draw(st.sampled_from(machine.counts[accelerator]))
        return {**spec, "accelerator_type": accelerator, "accelerator_count": count}, None
    return spec, None


@st.composite
def _pools(draw: st.DrawFn, machine: Document, replicas: int) -> Document:
    shared = {
        "args": draw(st.lists(st.sampled_from(["--run_mode=train", "--gin.TRAIN_STEPS=5", "x"]), max_size=3)),
        "env": [{"name": name.upper().replace("-", "_"), "value": "1"} for name in draw(st.sets(_words, max_size=3))],
    }
    kind, task = draw(st.sampled_from([("container_spec", CONTAINER), ("python_package_spec", PACKAGE)]))
    pool: Document = {"machine_spec": machine, "replica_count": replicas, kind: {**task, **shared}}
    if draw(st.booleans()):
        pool["disk_spec"] = {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": draw(st.integers(100, 64000))}
    return pool


@st.composite
def custom_jobs(draw: st.DrawFn) -> Job:
    """Draws a custom job that the service accepts."""
    machine, tpu = draw(_machines())
    pools = [draw(_pools(machine, 1))]
    spec: Document = {"worker_pool_specs": pools}
    if tpu is None:
        for _ in range(draw(st.integers(0, 3))):
            other, other_tpu = draw(_machines())
            pools.append(draw(_pools(other, draw(st.integers(1, 5)))) if other_tpu is None else {})
        if draw(st.booleans()):
            spec |= copy.deepcopy(TENSORBOARD)
    if draw(st.booleans()):
        spec["base_output_directory"] = {"output_uri_prefix": "gs://my-bucket/run"}
    if draw(st.booleans()):
        spec |= {"network": "projects/12345/global/networks/my-vpc", "scheduling": {"timeout": "3600s"}}
    document = {
        "display_name": draw(st.text(min_size=1, max_size=128)),
        "labels": draw(st.dictionaries(_words, _words, max_size=5)),
        "job_spec": spec,
    }
    return Job(document, _region_of(tpu if "tensorboard" not in spec else None), tpu)


STUDY: Document = {
    "metrics": [{"metric_id": "accuracy", "goal": "MAXIMIZE"}],
    "parameters": [
        {
            "parameter_id": "learning_rate",
            "double_value_spec": {"min_value": 1e-4, "max_value": 1.0},
            "scale_type": "UNIT_LOG_SCALE",
        },
        {"parameter_id": "layers", "integer_value_spec": {"min_value": 2, "max_value": 4}},
        {"parameter_id": "optimizer", "categorical_value_spec": {"values": ["adafactor", "sgd"]}},
        {"parameter_id": "batch_size", "discrete_value_spec": {"values": [8, 16, 32]}},
    ],
}


def _tuning(trial: Job, trials: int, parallel: int) -> Job:
    document = {"display_name": "tuning", "max_trial_count": trials, "parallel_trial_count": parallel}
    document |= {"trial_job_spec": trial.spec, "study_spec": STUDY}
    return Job(document, trial.location, trial.tpu, tunes=True)


@st.composite
def tuning_jobs(draw: st.DrawFn) -> Job:
    """Draws a tuning job that the service accepts."""
    return _tuning(draw(custom_jobs()), draw(st.integers(3, 9)), draw(st.integers(1, 3)))


def _example(machine: Document, tpu: str | None, **task: Document) -> Job:
    pool = {"machine_spec": machine, "replica_count": 1, **task}
    document = {"display_name": "example", "job_spec": {"worker_pool_specs": [pool]}}
    return Job(document, _region_of(tpu), tpu)


_V3 = {"machine_type": "cloud-tpu", "accelerator_type": "TPU_V3", "accelerator_count": 32}
_T4 = {"machine_type": "n1-standard-4", "accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 2}
_A100 = {"machine_type": "a2-highgpu-2g", "accelerator_type": "NVIDIA_TESLA_A100", "accelerator_count": 2}

EXAMPLES = (
    _example(_V3, "v3", container_spec=CONTAINER),
    _example({"machine_type": "ct5lp-hightpu-4t", "tpu_topology": "4x4"}, "v5e", container_spec=CONTAINER),
    _example({"machine_type": "ct6e-standard-8t", "tpu_topology": "2x4"}, "v6e", python_package_spec=PACKAGE),
    _example({"machine_type": "e2-standard-4"}, None, container_spec=CONTAINER),
    _example({"machine_type": "n1-standard-4"}, None, python_package_spec=PACKAGE),
    _example(_T4, None, container_spec=CONTAINER),
    _example(_A100, None, python_package_spec=PACKAGE),
)
"""Valid jobs with every kind of machine and both kinds of task."""

TUNING_EXAMPLE = _tuning(EXAMPLES[0], 4, 2)
