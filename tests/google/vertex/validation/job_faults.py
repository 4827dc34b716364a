"""All ways to break a valid job in one place, each with the rule that it breaks."""

import copy
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from job_documents import IMAGE, TENSORBOARD, Document, Job

from t5x_harness.google.vertex.validation.machine_types import machine_types

Condition: TypeAlias = Callable[[Job], object]

EXPERIMENT = "projects/p/locations/us-central1/metadataStores/default/contexts/tuning"


@dataclasses.dataclass(frozen=True)
class Fault:
    """One way to break a job.

    Attributes:
      rule: the rule that it breaks.
      field: the broken field; ``pool`` means the first pool, and ``spec`` the job's spec.
      spoil: changes the document.
      fits: returns whether a job can be broken this way.
      location: the location to which the job is sent, if that is the fault.
    """

    rule: str
    field: str
    spoil: Callable[[Job], object]
    fits: Condition
    location: str = ""

    def apply(self, job: Job) -> Job:
        """Returns a broken copy of a job."""
        spoilt = dataclasses.replace(job, document=copy.deepcopy(job.document), location=self.location or job.location)
        self.spoil(spoilt)
        return spoilt

    def place(self, job: Job) -> str:
        """Returns the service's name for the broken field."""
        pool = f"{job.spec_field}.worker_pool_specs[0]"
        first, dot, rest = self.field.partition(".")
        return {"pool": pool, "spec": job.spec_field}.get(first, first) + dot + rest


# The conditions under which a fault fits a job.


def has_tpu(job: Job) -> bool:
    return job.tpu is not None


def no_tpu(job: Job) -> bool:
    return job.tpu is None


def counted(job: Job) -> bool:
    """Returns whether the job requests TPUs by the number of cores."""
    return bool(job.machine["machine_type"] == "cloud-tpu")


def shaped(job: Job) -> bool:
    """Returns whether the job requests TPUs by the shape of a slice."""
    return "tpu_topology" in job.machine


def with_gpu(job: Job) -> bool:
    return no_tpu(job) and "accelerator_type" in job.machine


def bare(job: Job) -> bool:
    """Returns whether the job's machine cannot have accelerators."""
    machine = machine_types()[job.machine["machine_type"]]
    return machine.bare and not machine.counts and not machine.chips


def fault_in(
    part: Callable[[Job], Document | None],
    place: str,
    rule: str,
    field: str,
    fits: Condition | None = None,
    location: str = "",
    **changes: Any,
) -> Fault:
    """Returns a fault that changes fields in one part of a job, if the job has it. None removes a field."""

    def put(job: Job) -> None:
        target = part(job)
        assert target is not None
        target.update(copy.deepcopy(changes))
        for name in [name for name, value in changes.items() if value is None]:
            del target[name]

    whole = ".".join(filter(None, (place, field)))
    return Fault(rule, whole, put, fits or (lambda job: part(job) is not None), location)


in_job = partial(fault_in, lambda job: job.document, "")
in_spec = partial(fault_in, lambda job: job.spec, "spec")
in_pool = partial(fault_in, lambda job: job.pool, "pool")
in_machine = partial(fault_in, lambda job: job.machine, "pool.machine_spec")
in_container = partial(fault_in, lambda job: job.pool.get("container_spec"), "pool.container_spec")
in_package = partial(fault_in, lambda job: job.pool.get("python_package_spec"), "pool.python_package_spec")
in_study = partial(fault_in, lambda job: job.document["study_spec"], "study_spec")
in_metric = partial(fault_in, lambda job: job.document["study_spec"]["metrics"][0], "study_spec.metrics[0]")


def in_parameter(rule: str, number: int, field: str, **changes: Any) -> Fault:
    place = f"study_spec.parameters[{number}]"
    return fault_in(lambda job: job.document["study_spec"]["parameters"][number], place, rule, field, **changes)


def pools(number: int) -> Callable[[Job], object]:
    return lambda job: job.spec.update(worker_pool_specs=[job.pool] * number)


def with_tensorboard(rule: str, field: str, location: str = "", **changes: Any) -> Fault:
    return in_spec(rule, field, no_tpu, location, **{**TENSORBOARD, **changes})


ENV = {"name": "N", "value": "1"}

FAULTS = (
    in_job("display-name-missing", "display_name", display_name=None),
    in_job("display-name-length", "display_name", display_name="x" * 129),
    in_job("labels", "custom_job.labels", labels={f"k{n}": "v" for n in range(65)}),
    in_job("encryption-key", "encryption_spec.kms_key_name", encryption_spec={"kms_key_name": "my-key"}),
    in_job("region-unknown", "location", lambda job: "tensorboard" not in job.spec, "us-central1-a"),
    # No region is known not to have TPU v7x.
    in_job("region-without-tpu", "pool.machine_spec", lambda job: job.tpu not in (None, "7x"), "europe-west1"),
    in_job("region-tpu-doubtful", "pool.machine_spec", lambda job: job.tpu == "v6e", "us-west4"),
    in_spec("pools-missing", "worker_pool_specs", worker_pool_specs=[]),
    Fault("pools-number", "spec.worker_pool_specs", pools(5), no_tpu),
    Fault("tpu-pools", "spec.worker_pool_specs", pools(2), has_tpu),
    in_pool("tpu-replicas", "replica_count", has_tpu, replica_count=2),
    in_pool("primary-replicas", "replica_count", no_tpu, replica_count=3),
    in_pool("replicas-negative", "replica_count", replica_count=-1),
    in_pool("task-missing", "", container_spec=None, python_package_spec=None),
    in_container("image-missing", "image_uri", image_uri=None),
    in_container("image-form", "image_uri", image_uri="https://gcr.io/my-project/t5x"),
    in_container("image-form", "image_uri", image_uri="gcr.io/my-project/T5X:1"),
    in_container("image-registry", "image_uri", image_uri="t5x:1"),
    in_container("image-registry", "image_uri", image_uri="my-user/t5x"),
    in_package("executor-missing", "executor_image_uri", executor_image_uri=None),
    in_package("executor-not-prebuilt", "executor_image_uri", executor_image_uri=IMAGE),
    in_package("packages-missing", "package_uris", package_uris=None),
    in_package("packages-number", "package_uris", package_uris=[f"gs://my-bucket/{n}.tar.gz" for n in range(101)]),
    in_package("package-form", "package_uris[0]", package_uris=["/gcs/my-bucket/trainer.tar.gz"]),
    in_package("module-missing", "python_module", python_module=None),
    in_package("module-form", "python_module", python_module="trainer/task.py"),
    in_container("environment-number", "env", env=[{"name": f"N{n}", "value": "1"} for n in range(101)]),
    in_container("environment-name", "env[0].name", env=[{"name": "MY-NAME", "value": "1"}]),
    in_package("environment-name", "env[0].name", env=[{"value": "1"}]),
    in_container("environment-value", "env[0].value", env=[{"name": "N"}]),
    in_package("environment-unique", "env", env=[ENV, ENV]),
    in_container("arguments-length", "args", args=["x" * 50_000, "y" * 50_001]),
    in_pool("disk-type", "disk_spec.boot_disk_type", disk_spec={"boot_disk_type": "ssd"}),
    in_pool("disk-size", "disk_spec.boot_disk_size_gb", disk_spec={"boot_disk_size_gb": 99}),
    in_pool("disk-size", "disk_spec.boot_disk_size_gb", disk_spec={"boot_disk_size_gb": 64001}),
    in_pool("machine-missing", "machine_spec.machine_type", machine_spec={}),
    in_pool("machine-unknown", "machine_spec.machine_type", machine_spec={"machine_type": "n1-standard-5"}),
    in_pool("machine-unknown", "machine_spec.machine_type", machine_spec={"machine_type": "v3-32"}),
    in_pool("machine-unlisted", "machine_spec.machine_type", machine_spec={"machine_type": "c3-standard-4"}),
    in_machine("accelerator-half", "accelerator_type", counted, accelerator_count=None),
    in_machine("accelerator-half", "accelerator_type", with_gpu, accelerator_count=None),
    in_machine("accelerator-half", "accelerator_type", bare, accelerator_count=1),
    in_pool("accelerator-required", "machine_spec.accelerator_type", machine_spec={"machine_type": "cloud-tpu"}),
    in_pool("accelerator-required", "machine_spec.accelerator_type", machine_spec={"machine_type": "g2-standard-4"}),
    in_machine("accelerator-unsupported", "accelerator_type", counted, accelerator_type="TPU_V4_POD"),
    in_machine("accelerator-unsupported", "accelerator_type", bare, accelerator_type="TPU_V3", accelerator_count=8),
    in_machine("accelerator-number-unknown", "accelerator_type", no_tpu, accelerator_type=99, accelerator_count=8),
    in_machine("tpu-count", "accelerator_count", counted, accelerator_count=4),
    in_machine("tpu-slice", "accelerator_count", counted, accelerator_count=96),
    in_machine("gpu-count", "accelerator_count", with_gpu, accelerator_count=3),
    in_machine("topology-missing", "tpu_topology", shaped, tpu_topology=None),
    in_machine("topology-unsupported", "tpu_topology", shaped, tpu_topology="3x3"),
    in_machine("topology-unused", "tpu_topology", counted, tpu_topology="2x2"),
    in_spec(
        "output-form",
        "base_output_directory.output_uri_prefix",
        base_output_directory={"output_uri_prefix": "/gcs/my-bucket/run"},
    ),
    in_spec("service-account-form", "service_account", no_tpu, service_account="trainer"),
    in_spec("tpu-service-account", "service_account", has_tpu, service_account="trainer@my-project.com"),
    with_tensorboard("tensorboard-form", "tensorboard", tensorboard="my-tensorboard"),
    with_tensorboard("tensorboard-service-account", "service_account", service_account=None),
    with_tensorboard("tensorboard-region", "tensorboard", "europe-west4"),
    with_tensorboard("tensorboard-output", "base_output_directory", base_output_directory=None),
    in_spec("network-form", "network", network="my-vpc"),
    in_spec("network-project", "network", network="projects/my-project/global/networks/my-vpc"),
    in_spec("ip-ranges-network", "reserved_ip_ranges", reserved_ip_ranges=["range"], network=None),
    in_spec("experiment-form", "experiment", experiment="my-experiment"),
    in_spec("experiment-run-form", "experiment_run", experiment=EXPERIMENT, experiment_run="my-run"),
    in_spec("experiment-run-alone", "experiment_run", experiment=None, experiment_run=f"{EXPERIMENT}-first"),
    in_spec("timeout-negative", "scheduling.timeout", scheduling={"timeout": "-5s"}),
    in_spec(
        "wait-negative",
        "scheduling.max_wait_duration",
        scheduling={"strategy": "FLEX_START", "max_wait_duration": "-5s"},
    ),
    in_spec(
        "wait-without-flex-start",
        "scheduling.max_wait_duration",
        scheduling={"strategy": "SPOT", "max_wait_duration": "5s"},
    ),
    in_spec(
        "restart-without-retries",
        "scheduling.restart_job_on_worker_restart",
        scheduling={"restart_job_on_worker_restart": True, "disable_retries": True},
    ),
    in_container("data-dir-none", "args[0]", args=["--tfds_data_dir=None"]),
    in_package("gin-prefix-twice", "args[0]", args=["--gin.--gin.X=1"]),
    in_container("argument-carried-over", "args[1]", args=["--gin.X=1", "--gin.Y=1,"]),
    in_package("argument-carried-over", "args[0]", args=['"--gin.Y=1,', "--gin.X=1"]),
    in_package("run-mode", "args[0]", args=["--run_mode=compile"]),
    in_container("t5x-module", "", command=["python", "-m", "t5x.train_unfragmented"]),
    in_package("t5x-module", "", python_module="t5x.train_unfragmented"),
)

TUNING_FAULTS = (
    in_job("trials", "max_trial_count", max_trial_count=None),
    in_job("parallel-trials", "parallel_trial_count", parallel_trial_count=None),
    in_job("failed-trials", "max_failed_trial_count", max_failed_trial_count=-1),
    in_job("more-parallel-than-trials", "parallel_trial_count", parallel_trial_count=10),
    in_study("metrics-missing", "metrics", metrics=None),
    in_metric("metric-id", "metric_id", metric_id="my accuracy"),
    in_study("metrics-unique", "metrics", metrics=2 * [{"metric_id": "loss", "goal": "MINIMIZE"}]),
    in_metric("metric-goal", "goal", goal=None),
    in_study("parameters-missing", "parameters", parameters=None),
    in_parameter("parameter-id", 1, "parameter_id", parameter_id=None),
    in_study(
        "parameters-unique",
        "parameters",
        parameters=2 * [{"parameter_id": "layers", "integer_value_spec": {"min_value": 2, "max_value": 4}}],
    ),
    in_parameter("parameter-values", 1, "", integer_value_spec=None),
    in_parameter("parameter-range", 1, "integer_value_spec", integer_value_spec={"min_value": 5, "max_value": 4}),
    in_parameter("categories-missing", 2, "categorical_value_spec.values", categorical_value_spec={}),
    in_parameter("discrete-missing", 3, "discrete_value_spec.values", discrete_value_spec={}),
    in_parameter("discrete-number", 3, "discrete_value_spec.values", discrete_value_spec={"values": list(range(1001))}),
    in_parameter("discrete-order", 3, "discrete_value_spec.values", discrete_value_spec={"values": [8, 32, 16]}),
    in_parameter("scale-categorical", 2, "scale_type", scale_type="UNIT_LINEAR_SCALE"),
    in_parameter("scale-positive", 0, "scale_type", double_value_spec={"min_value": 0, "max_value": 1}),
    in_study("grid-of-doubles", "algorithm", algorithm="GRID_SEARCH"),
    in_study("observation-noise", "observation_noise", observation_noise="LOW"),
)
