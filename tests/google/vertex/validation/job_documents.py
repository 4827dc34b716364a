"""Jobs as documents: a generator of valid ones, and every way to spoil one at one place."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

from google.cloud.aiplatform_v1.types import CustomJob, HyperparameterTuningJob
from google.protobuf import json_format
from hypothesis import strategies as st

from t5x_harness.google.vertex.validation.machine_types import cloud_tpus, machine_types
from t5x_harness.slices import slice_names

Document: TypeAlias = dict[str, Any]

PROJECT = "projects/my-project/locations/us-central1"
IMAGE = "us-docker.pkg.dev/my-project/images/t5x:1"
TENSORBOARD = {
    "tensorboard": f"{PROJECT}/tensorboards/7",
    "service_account": "trainer@my-project.iam.gserviceaccount.com",
    "base_output_directory": {"output_uri_prefix": "gs://my-bucket/run"},
}
_GENERATION_REGION = {
    "v2": "us-central1",
    "v3": "us-central1",
    "v5e": "us-west4",
    "v6e": "us-east5",
    "7x": "us-central1",
}

CONTAINER: Document = {"image_uri": IMAGE, "args": ["--run_mode=train"]}
PACKAGE: Document = {
    "executor_image_uri": "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-14.py310:latest",
    "package_uris": ["gs://my-bucket/trainer-0.1.tar.gz"],
    "python_module": "trainer.task",
}

_words = st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True)


@dataclasses.dataclass(frozen=True)
class Job:
    """A job's document, and the region that it is for."""

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


@st.composite
def _machines(draw: st.DrawFn) -> tuple[Document, str | None]:
    """A machine spec, and its TPU generation."""
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
        spec |= {
            "accelerator_type": accelerator,
            "accelerator_count": draw(st.sampled_from(machine.counts[accelerator])),
        }
    return spec, None


@st.composite
def _pools(draw: st.DrawFn, machine: Document, replicas: int) -> Document:
    shared = {
        "args": draw(st.lists(st.sampled_from(["--run_mode=train", "--gin.TRAIN_STEPS=5", "x"]), max_size=3)),
        "env": [{"name": name.upper().replace("-", "_"), "value": "1"} for name in draw(st.sets(_words, max_size=3))],
    }
    pool: Document = {"machine_spec": machine, "replica_count": replicas}
    if draw(st.booleans()):
        pool["container_spec"] = {**CONTAINER, **shared}
    else:
        pool["python_package_spec"] = {**PACKAGE, **shared}
    if draw(st.booleans()):
        pool["disk_spec"] = {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": draw(st.integers(100, 64000))}
    return pool


@st.composite
def custom_jobs(draw: st.DrawFn) -> Job:
    """Jobs that the service takes."""
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
    return Job(document, _GENERATION_REGION[tpu] if tpu and "tensorboard" not in spec else "us-central1", tpu)


def _tuning(trial: Job, trials: int, parallel: int) -> Job:
    study = {
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
    document = {
        "display_name": "tuning",
        "max_trial_count": trials,
        "parallel_trial_count": parallel,
        "trial_job_spec": trial.spec,
        "study_spec": study,
    }
    return Job(document, trial.location, trial.tpu, tunes=True)


@st.composite
def tuning_jobs(draw: st.DrawFn) -> Job:
    """Jobs of trials that the service takes."""
    return _tuning(draw(custom_jobs()), draw(st.integers(3, 9)), draw(st.integers(1, 3)))


def _example(machine: Document, tpu: str | None, **task: Document) -> Job:
    pool = {"machine_spec": machine, "replica_count": 1, **task}
    document = {"display_name": "example", "job_spec": {"worker_pool_specs": [pool]}}
    return Job(document, _GENERATION_REGION[tpu] if tpu else "us-central1", tpu)


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
"""Valid jobs of every kind of machine, and of both kinds of task."""

TUNING_EXAMPLE = _tuning(EXAMPLES[0], 4, 2)


@dataclasses.dataclass(frozen=True)
class Fault:
    """One way to spoil a job.

    Attributes:
      rule: that it breaks.
      field: where; ``pool`` stands for the first pool and ``spec`` for the job's spec.
      spoil: changes the document.
      fits: whether a job can be spoilt so.
      location: to send it to, if that is the fault.
    """

    rule: str
    field: str
    spoil: Callable[[Job], object]
    fits: Callable[[Job], object] = lambda job: True
    location: str = ""

    def apply(self, job: Job) -> Job:
        """The spoilt copy."""
        spoilt = dataclasses.replace(job, document=copy.deepcopy(job.document), location=self.location or job.location)
        self.spoil(spoilt)
        return spoilt

    def place(self, job: Job) -> str:
        """Where the job is spoilt, as the service names it."""
        pool = f"{job.spec_field}.worker_pool_specs[0]"
        first, dot, rest = self.field.partition(".")
        return {"pool": pool, "spec": job.spec_field}.get(first, first) + dot + rest


def _container(job: Job) -> Document | None:
    return job.pool.get("container_spec")


def _package(job: Job) -> Document | None:
    return job.pool.get("python_package_spec")


def _task(job: Job) -> Document:
    return _container(job) or job.pool["python_package_spec"]


def _bare(job: Job) -> bool:
    """Whether the first pool has a machine that says nothing more than its type."""
    machine = machine_types()[job.machine["machine_type"]]
    return machine.bare and not machine.counts and not machine.chips


def _in_container(text: str) -> Callable[[Job], object]:
    return lambda job: job.pool["container_spec"].update(args=[text])


_CUSTOM = "custom_job.labels"
_NO_TENSORBOARD = lambda job: "tensorboard" not in job.spec  # noqa: E731 a name for a condition
_COUNTED = lambda job: job.machine["machine_type"] == "cloud-tpu"  # noqa: E731
_SHAPED = lambda job: "tpu_topology" in job.machine  # noqa: E731
_NO_TPU = lambda job: job.tpu is None  # noqa: E731
_TPU = lambda job: job.tpu is not None  # noqa: E731
_GPU = lambda job: job.tpu is None and "accelerator_type" in job.machine  # noqa: E731

FAULTS = (
    Fault("display-name-missing", "display_name", lambda j: j.document.pop("display_name")),
    Fault("display-name-length", "display_name", lambda j: j.document.update(display_name="x" * 129)),
    Fault("labels", _CUSTOM, lambda j: j.document.update(labels={"Team": "nlp"})),
    Fault("labels", _CUSTOM, lambda j: j.document.update(labels={"team": "n.l.p"})),
    Fault("labels", _CUSTOM, lambda j: j.document.update(labels={"-team": "nlp"})),
    Fault("labels", _CUSTOM, lambda j: j.document.update(labels={"team": "x" * 64})),
    Fault("labels", _CUSTOM, lambda j: j.document.update(labels={f"k{n}": "v" for n in range(65)})),
    Fault(
        "encryption-key",
        "encryption_spec.kms_key_name",
        lambda j: j.document.update(encryption_spec={"kms_key_name": "my-key"}),
    ),
    Fault("region-unknown", "location", lambda j: None, _NO_TENSORBOARD, location="us-central1-a"),
    Fault(
        "region-without-tpu", "pool.machine_spec", lambda j: None, lambda j: j.tpu not in (None, "7x"), "europe-west1"
    ),
    Fault("pools-missing", "spec.worker_pool_specs", lambda j: j.spec.update(worker_pool_specs=[])),
    Fault(
        "pools-number",
        "spec.worker_pool_specs",
        lambda j: j.spec.update(worker_pool_specs=[copy.deepcopy(j.pool) for _ in range(5)]),
        _NO_TPU,
    ),
    Fault("tpu-pools", "spec.worker_pool_specs", lambda j: j.spec["worker_pool_specs"].append(dict(j.pool)), _TPU),
    Fault("tpu-replicas", "pool.replica_count", lambda j: j.pool.update(replica_count=2), _TPU),
    Fault("primary-replicas", "pool.replica_count", lambda j: j.pool.update(replica_count=3), _NO_TPU),
    Fault("replicas-negative", "pool.replica_count", lambda j: j.pool.update(replica_count=-1)),
    Fault("task-missing", "pool", lambda j: j.pool.pop("container_spec"), _container),
    Fault("task-missing", "pool", lambda j: j.pool.pop("python_package_spec"), _package),
    Fault("image-missing", "pool.container_spec.image_uri", lambda j: _task(j).pop("image_uri"), _container),
    Fault(
        "image-form",
        "pool.container_spec.image_uri",
        lambda j: _task(j).update(image_uri="https://gcr.io/my-project/t5x"),
        _container,
    ),
    Fault(
        "executor-missing",
        "pool.python_package_spec.executor_image_uri",
        lambda j: _task(j).pop("executor_image_uri"),
        _package,
    ),
    Fault(
        "executor-not-prebuilt",
        "pool.python_package_spec.executor_image_uri",
        lambda j: _task(j).update(executor_image_uri=IMAGE),
        _package,
    ),
    Fault(
        "packages-missing", "pool.python_package_spec.package_uris", lambda j: _task(j).pop("package_uris"), _package
    ),
    Fault(
        "packages-number",
        "pool.python_package_spec.package_uris",
        lambda j: _task(j).update(package_uris=[f"gs://my-bucket/{n}.tar.gz" for n in range(101)]),
        _package,
    ),
    Fault(
        "package-form",
        "pool.python_package_spec.package_uris[0]",
        lambda j: _task(j).update(package_uris=["/gcs/my-bucket/trainer.tar.gz"]),
        _package,
    ),
    Fault(
        "module-missing", "pool.python_package_spec.python_module", lambda j: _task(j).pop("python_module"), _package
    ),
    Fault(
        "module-form",
        "pool.python_package_spec.python_module",
        lambda j: _task(j).update(python_module="trainer/task.py"),
        _package,
    ),
    Fault(
        "environment-number",
        "pool.container_spec.env",
        lambda j: _task(j).update(env=[{"name": f"N{n}", "value": "1"} for n in range(101)]),
        _container,
    ),
    Fault(
        "environment-name",
        "pool.container_spec.env[0].name",
        lambda j: _task(j).update(env=[{"name": "MY-NAME", "value": "1"}]),
        _container,
    ),
    Fault(
        "environment-name",
        "pool.container_spec.env[0].name",
        lambda j: _task(j).update(env=[{"value": "1"}]),
        _container,
    ),
    Fault(
        "environment-value",
        "pool.container_spec.env[0].value",
        lambda j: _task(j).update(env=[{"name": "N"}]),
        _container,
    ),
    Fault(
        "environment-unique",
        "pool.container_spec.env",
        lambda j: _task(j).update(env=[{"name": "N", "value": "1"}, {"name": "N", "value": "2"}]),
        _container,
    ),
    Fault("arguments-length", "pool.container_spec.args", _in_container("x" * 100_001), _container),
    Fault("disk-type", "pool.disk_spec.boot_disk_type", lambda j: j.pool.update(disk_spec={"boot_disk_type": "ssd"})),
    Fault(
        "disk-size", "pool.disk_spec.boot_disk_size_gb", lambda j: j.pool.update(disk_spec={"boot_disk_size_gb": 50})
    ),
    Fault("machine-missing", "pool.machine_spec.machine_type", lambda j: j.pool.update(machine_spec={})),
    Fault(
        "machine-unknown",
        "pool.machine_spec.machine_type",
        lambda j: j.pool.update(machine_spec={"machine_type": "n1-standard-5"}),
    ),
    Fault(
        "machine-unknown",
        "pool.machine_spec.machine_type",
        lambda j: j.pool.update(machine_spec={"machine_type": "v3-32"}),
    ),
    Fault(
        "machine-unlisted",
        "pool.machine_spec.machine_type",
        lambda j: j.pool.update(machine_spec={"machine_type": "c3-standard-4"}),
    ),
    Fault(
        "accelerator-half",
        "pool.machine_spec.accelerator_type",
        lambda j: j.machine.pop("accelerator_count"),
        lambda j: "accelerator_count" in j.machine,
    ),
    Fault(
        "accelerator-half",
        "pool.machine_spec.accelerator_type",
        lambda j: j.machine.update(accelerator_count=1),
        _bare,
    ),
    Fault(
        "accelerator-required",
        "pool.machine_spec.accelerator_type",
        lambda j: j.pool.update(machine_spec={"machine_type": "cloud-tpu"}),
    ),
    Fault(
        "accelerator-required",
        "pool.machine_spec.accelerator_type",
        lambda j: j.pool.update(machine_spec={"machine_type": "g2-standard-4"}),
    ),
    Fault(
        "accelerator-unsupported",
        "pool.machine_spec.accelerator_type",
        lambda j: j.machine.update(accelerator_type="TPU_V4_POD"),
        _COUNTED,
    ),
    Fault(
        "accelerator-unsupported",
        "pool.machine_spec.accelerator_type",
        lambda j: j.machine.update(accelerator_type="TPU_V3", accelerator_count=8),
        _bare,
    ),
    Fault(
        "accelerator-number-unknown",
        "pool.machine_spec.accelerator_type",
        lambda j: j.machine.update(accelerator_type=99, accelerator_count=8),
        lambda j: not _SHAPED(j),
    ),
    Fault(
        "tpu-count", "pool.machine_spec.accelerator_count", lambda j: j.machine.update(accelerator_count=4), _COUNTED
    ),
    Fault(
        "tpu-slice", "pool.machine_spec.accelerator_count", lambda j: j.machine.update(accelerator_count=96), _COUNTED
    ),
    Fault("gpu-count", "pool.machine_spec.accelerator_count", lambda j: j.machine.update(accelerator_count=3), _GPU),
    Fault("topology-missing", "pool.machine_spec.tpu_topology", lambda j: j.machine.pop("tpu_topology"), _SHAPED),
    Fault(
        "topology-unsupported",
        "pool.machine_spec.tpu_topology",
        lambda j: j.machine.update(tpu_topology="3x3"),
        _SHAPED,
    ),
    Fault(
        "topology-unused", "pool.machine_spec.tpu_topology", lambda j: j.machine.update(tpu_topology="2x2"), _COUNTED
    ),
    Fault(
        "output-form",
        "spec.base_output_directory.output_uri_prefix",
        lambda j: j.spec.update(base_output_directory={"output_uri_prefix": "/gcs/my-bucket/run"}),
    ),
    Fault("service-account-form", "spec.service_account", lambda j: j.spec.update(service_account="trainer"), _NO_TPU),
    Fault("tpu-service-account", "spec.service_account", lambda j: j.spec.update(service_account="a@b.c"), _TPU),
    Fault(
        "tensorboard-form",
        "spec.tensorboard",
        lambda j: j.spec.update({**TENSORBOARD, "tensorboard": "my-tensorboard"}),
        _NO_TPU,
    ),
    Fault(
        "tensorboard-service-account",
        "spec.service_account",
        lambda j: (j.spec.update(copy.deepcopy(TENSORBOARD)), j.spec.pop("service_account")),
        _NO_TPU,
    ),
    Fault(
        "tensorboard-region",
        "spec.tensorboard",
        lambda j: j.spec.update(copy.deepcopy(TENSORBOARD)),
        _NO_TPU,
        location="europe-west4",
    ),
    Fault(
        "tensorboard-output",
        "spec.base_output_directory",
        lambda j: (j.spec.update(copy.deepcopy(TENSORBOARD)), j.spec.pop("base_output_directory")),
        _NO_TPU,
    ),
    Fault("network-form", "spec.network", lambda j: j.spec.update(network="my-vpc")),
    Fault("network-project", "spec.network", lambda j: j.spec.update(network="projects/p/global/networks/my-vpc")),
    Fault(
        "ip-ranges-network",
        "spec.reserved_ip_ranges",
        lambda j: j.spec.update(reserved_ip_ranges=["range"]),
        lambda j: "network" not in j.spec,
    ),
    Fault("experiment-form", "spec.experiment", lambda j: j.spec.update(experiment="my-experiment")),
    Fault("experiment-run-form", "spec.experiment_run", lambda j: j.spec.update(experiment_run="my-run")),
    Fault("timeout-negative", "spec.scheduling.timeout", lambda j: j.spec.update(scheduling={"timeout": "-5s"})),
    Fault(
        "wait-negative",
        "spec.scheduling.max_wait_duration",
        lambda j: j.spec.update(scheduling={"strategy": "FLEX_START", "max_wait_duration": "-5s"}),
    ),
    Fault(
        "wait-without-flex-start",
        "spec.scheduling.max_wait_duration",
        lambda j: j.spec.update(scheduling={"strategy": "SPOT", "max_wait_duration": "5s"}),
    ),
    Fault(
        "restart-without-retries",
        "spec.scheduling.restart_job_on_worker_restart",
        lambda j: j.spec.update(scheduling={"restart_job_on_worker_restart": True, "disable_retries": True}),
    ),
    Fault("data-dir-none", "pool.container_spec.args[0]", _in_container("--tfds_data_dir=None"), _container),
    Fault("gin-prefix-twice", "pool.container_spec.args[0]", _in_container("--gin.--gin.X=1"), _container),
    Fault("argument-carried-over", "pool.container_spec.args[0]", _in_container("--gin.X=1,"), _container),
    Fault("run-mode", "pool.container_spec.args[0]", _in_container("--run_mode=compile"), _container),
    Fault(
        "t5x-module",
        "pool.container_spec",
        lambda j: _task(j).update(command=["python", "-m", "t5x.train_unfragmented"]),
        _container,
    ),
    Fault(
        "t5x-module",
        "pool.python_package_spec",
        lambda j: _task(j).update(python_module="t5x.train_unfragmented"),
        _package,
    ),
)

_STUDY = "study_spec"
TUNING_FAULTS = (
    Fault("trials", "max_trial_count", lambda j: j.document.pop("max_trial_count")),
    Fault("parallel-trials", "parallel_trial_count", lambda j: j.document.pop("parallel_trial_count")),
    Fault("failed-trials", "max_failed_trial_count", lambda j: j.document.update(max_failed_trial_count=-1)),
    Fault("more-parallel-than-trials", "parallel_trial_count", lambda j: j.document.update(parallel_trial_count=10)),
    Fault("metrics-missing", "study_spec.metrics", lambda j: j.document[_STUDY].pop("metrics")),
    Fault(
        "metric-id",
        "study_spec.metrics[0].metric_id",
        lambda j: j.document[_STUDY]["metrics"][0].update(metric_id="my accuracy"),
    ),
    Fault(
        "metrics-unique",
        "study_spec.metrics",
        lambda j: j.document[_STUDY].update(metrics=2 * j.document[_STUDY]["metrics"]),
    ),
    Fault("metric-goal", "study_spec.metrics[0].goal", lambda j: j.document[_STUDY]["metrics"][0].pop("goal")),
    Fault("parameters-missing", "study_spec.parameters", lambda j: j.document[_STUDY].pop("parameters")),
    Fault(
        "parameter-id",
        "study_spec.parameters[1].parameter_id",
        lambda j: j.document[_STUDY]["parameters"][1].pop("parameter_id"),
    ),
    Fault(
        "parameters-unique",
        "study_spec.parameters",
        lambda j: j.document[_STUDY]["parameters"][1].update(parameter_id="optimizer"),
    ),
    Fault(
        "parameter-values",
        "study_spec.parameters[1]",
        lambda j: j.document[_STUDY]["parameters"][1].pop("integer_value_spec"),
    ),
    Fault(
        "parameter-range",
        "study_spec.parameters[1].integer_value_spec",
        lambda j: j.document[_STUDY]["parameters"][1].update(integer_value_spec={"min_value": 5, "max_value": 4}),
    ),
    Fault(
        "categories-missing",
        "study_spec.parameters[2].categorical_value_spec.values",
        lambda j: j.document[_STUDY]["parameters"][2].update(categorical_value_spec={}),
    ),
    Fault(
        "discrete-missing",
        "study_spec.parameters[3].discrete_value_spec.values",
        lambda j: j.document[_STUDY]["parameters"][3].update(discrete_value_spec={}),
    ),
    Fault(
        "discrete-number",
        "study_spec.parameters[3].discrete_value_spec.values",
        lambda j: j.document[_STUDY]["parameters"][3].update(discrete_value_spec={"values": list(range(1001))}),
    ),
    Fault(
        "discrete-order",
        "study_spec.parameters[3].discrete_value_spec.values",
        lambda j: j.document[_STUDY]["parameters"][3].update(discrete_value_spec={"values": [8, 32, 16]}),
    ),
    Fault(
        "scale-categorical",
        "study_spec.parameters[2].scale_type",
        lambda j: j.document[_STUDY]["parameters"][2].update(scale_type="UNIT_LINEAR_SCALE"),
    ),
    Fault(
        "scale-positive",
        "study_spec.parameters[0].scale_type",
        lambda j: j.document[_STUDY]["parameters"][0].update(double_value_spec={"min_value": 0, "max_value": 1}),
    ),
    Fault("grid-of-doubles", "study_spec.algorithm", lambda j: j.document[_STUDY].update(algorithm="GRID_SEARCH")),
    Fault(
        "observation-noise",
        "study_spec.observation_noise",
        lambda j: j.document[_STUDY].update(observation_noise="LOW"),
    ),
)
