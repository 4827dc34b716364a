"""A TPU pool of several hosts is a pod of processes, each with its host's devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from job_service import attempt, pool, processes_of, until

from t5x_harness.google.vertex.jobs import driver
from t5x_harness.google.vertex.jobs.endings import JobState
from t5x_harness.google.vertex.jobs.launching import policy_of
from t5x_harness.slices.pod import Pod
from t5x_harness.variables import POD_VARIABLE, SLICE_VARIABLE

HOSTS = [f"workerpool0-0.{host}" for host in range(4)]


def tpu(*words: str, cores: int) -> dict[str, Any]:
    """Returns a pool that is a v3 slice."""
    return pool(*words, machine_type="cloud-tpu", accelerator_type="TPU_V3", accelerator_count=cores)


def test_each_host_is_a_process_with_its_part_of_the_devices(service: Any) -> None:
    tried = attempt(service.api.services.settings, tpu("true", cores=32))
    assert list(tried.units) == HOSTS
    environments = [tried.task(host).environment for host in HOSTS]
    pods = [Pod.from_environment(environment) for environment in environments]
    assert [(pod.processes, pod.index) for pod in pods if pod] == [(4, host) for host in range(4)]
    assert len({pod.coordinator for pod in pods if pod}) == 1
    for environment in environments:
        assert environment[SLICE_VARIABLE] == "v3-32"
        assert environment["JAX_NUM_CPU_DEVICES"] == "8"


@pytest.mark.parametrize(
    ("pod_hosts", "cores", "hosts"), [(4, 8, 1), (4, 512, 1), (4, 32, 4), (1, 32, 1), (64, 512, 64)]
)
def test_a_slice_is_a_pod_if_the_user_allows_so_many_hosts_and_restarts_as_one(
    make_service: Callable[..., Any], pod_hosts: int, cores: int, hosts: int
) -> None:
    settings = make_service(pod_hosts=pod_hosts).api.services.settings
    tried = attempt(settings, tpu("true", cores=cores))
    assert len(tried.units) == hosts
    assert policy_of(tried.spec, settings).restarts_as_whole == (hosts > 1)
    environment = tried.task(next(iter(tried.units))).environment
    assert (POD_VARIABLE in environment) == (hosts > 1)
    assert (environment[SLICE_VARIABLE], environment["JAX_NUM_CPU_DEVICES"]) == (f"v3-{cores}", str(cores // hosts))


def test_other_machines_have_no_slice(service: Any) -> None:
    environment = attempt(service.api.services.settings, pool("true")).task("workerpool0-0").environment
    assert not {SLICE_VARIABLE, POD_VARIABLE, "JAX_NUM_CPU_DEVICES"} & environment.keys()


PROGRAM = """
import os, subprocess, sys
import jax
if os.environ["T5X_HARNESS_POD"].endswith((",1", ",3")):
    jax.distributed.initialize()  # as a program may do on a TPU pod, and need not
from jax.experimental import multihost_utils
from t5x import partitioning
hosts = multihost_utils.process_allgather(jax.numpy.array(jax.process_index())).tolist()
mesh = partitioning.default_mesh(2)
local = [device.process_index for device in mesh.devices.flat].count(jax.process_index())
child = subprocess.run([sys.executable, "-c", "import jax; print(jax.process_count())"], capture_output=True, text=True)
shown = jax.process_index(), jax.process_count(), jax.local_device_count(), hosts, dict(mesh.shape), local
print("host", *shown, "child alone" if child.stdout == "1\\n" else child)
"""


@pytest.mark.journey
def test_the_processes_are_one_jax(service: Any) -> None:
    job = service.ended(service.create({"worker_pool_specs": [tpu("python", "-c", PROGRAM, cores=32)]}))
    said = [line for line in service.said(job) if line.startswith("host ")]  # Gloo also prints lines and parts of lines
    assert job.state == JobState.SUCCEEDED, service.said(job)
    mesh = "{'data': 16, 'model': 2}"
    assert sorted(said) == [f"host {host} 4 8 [0, 1, 2, 3] {mesh} 8 child alone" for host in range(4)]


def test_a_pod_ends_on_being_told(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "WARNED_SECONDS", 1000.0)
    program = "import jax, time; jax.devices(); print('joined', flush=True); time.sleep(1000)"
    job = service.create({"worker_pool_specs": [tpu("python", "-c", program, cores=32)]})
    until(lambda: service.said(job), lambda lines: lines.count("joined") == 4)
    service.cancel(job)
    assert service.ended(job).state == JobState.CANCELLED


def test_the_first_death_ends_the_pod(service: Any) -> None:
    program = "import os, sys\nif os.environ['T5X_HARNESS_POD'].endswith(',2'): sys.exit(5)\nimport jax; jax.devices()"
    job = service.ended(service.create({"worker_pool_specs": [tpu("python", "-c", program, cores=32)]}))
    assert job.state == JobState.FAILED
    assert job.error.message.startswith("The replica workerpool0-0 exited with a non-zero status of 5.")
    assert "Host 2 of the replica workerpool0-0 exited with a status of 5." in service.said(job, "service")
    assert not processes_of(service.api.services.settings.folder)
