"""Turns the spec of a job into the processes of one attempt: the words, variables and folder of each."""

import dataclasses
import functools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.cloud.aiplatform_v1 import types
from google.protobuf.json_format import ParseDict

from t5x_harness.buckets.addresses import bucket_and_name
from t5x_harness.buckets.emulated import Store
from t5x_harness.google.gcs_mount.mount import MountMode
from t5x_harness.google.gcs_mount.namespace import NamespaceRefused
from t5x_harness.google.gcs_mount.probing import launched
from t5x_harness.google.vertex.jobs import python_environment
from t5x_harness.google.vertex.jobs.guarded import Task, make_empty
from t5x_harness.google.vertex.jobs.machine import Policy
from t5x_harness.google.vertex.jobs.programs import ImageStandIn, ImageUnknown, Programs, find_image, find_programs
from t5x_harness.google.vertex.jobs.python_environment import PackageError, fetch_packages
from t5x_harness.google.vertex.jobs.replicas import (
    JobPlace,
    Trial,
    Unit,
    WorkerPool,
    cluster_variables,
    expand,
    job_variables,
    pools_of,
)
from t5x_harness.google.vertex.jobs.standby import Standbys
from t5x_harness.google.vertex.settings import VertexSettings
from t5x_harness.slices.pod import Pod
from t5x_harness.system.network_filter import free_ports
from t5x_harness.variables import MODE_VARIABLE, ROOT_VARIABLE

_METRIC_FILE = "hypertune/output.metrics"

# Things that the service does in addition to running a job, and that the emulation does not do.
_NO_UPLOAD = (
    "the service uploads what a job writes to AIP_TENSORBOARD_LOG_DIR to its TensorBoard; the emulation does not: "
    "aiplatform.upload_tb_log does it for a run that has ended"
)
_NO_WEB_ACCESS = (
    "there is no interactive shell here: web_access_uris stays empty; on the service it has an address for each "
    "replica while the job runs"
)
_NO_BUCKET = (
    "base_output_directory is in the bucket {name}, which does not exist: on the service nothing can be written there; "
    "here a folder that a job makes at /gcs/{name} becomes the bucket. Create it before the job: "
    "gcloud storage buckets create gs://{name}"
)
_JOB_ID = re.compile(r"[0-9]+")


class CannotLaunch(ValueError):
    """A job cannot be run here; the message says why, and what to do."""


def job_folder(settings: VertexSettings, name: str) -> Path:
    """Returns the folder for everything that the server writes for a job.

    It raises CannotLaunch for an id that does not have the service's form, and could lead to another folder.
    """
    job_id = name.rpartition("/")[2]
    if not _JOB_ID.fullmatch(job_id):
        raise CannotLaunch(f"{job_id!r} is not an id of a job")
    return settings.folder / job_id


def metric_file(settings: VertexSettings, name: str, spec: Any) -> Path:
    """Returns the file into which the primary replica of a job that runs a trial writes the trial's metrics."""
    return job_folder(settings, name) / next(pools_of(spec, settings.options.pod_hosts)[0].units()).name / _METRIC_FILE


def policy_of(spec: Any, settings: VertexSettings) -> Policy:
    """Returns the policy that a ``CustomJobSpec`` asks for."""
    found = pools_of(spec, settings.options.pod_hosts)
    scheduling = spec.scheduling
    return Policy(
        units=frozenset(unit.name for pool in found for unit in pool.units()),
        primary=frozenset(unit.name for unit in found[0].units()),
        # A slice is useless if one of its hosts is missing.
        restarts_as_whole=scheduling.restart_job_on_worker_restart or any(pool.hosts > 1 for pool in found),
        retries=not scheduling.disable_retries,
    )


def notes_on(spec: Any, settings: VertexSettings) -> list[str]:
    """Returns notes on how a job with this ``CustomJobSpec`` differs from the same job on the service."""
    found = pools_of(spec, settings.options.pod_hosts)
    notes = [
        f"{pool.slice.name} has {pool.slice.hosts} hosts; here it is one process with all of its "
        f"{pool.slice.num_devices} devices, as slices of more than {settings.options.pod_hosts} hosts are (pod_hosts)"
        for pool in found
        if pool.slice is not None and pool.hosts < pool.slice.hosts
    ]
    for pool in found:
        container = pool.spec.container_spec
        if pool.spec.WhichOneof("task") == "container_spec" and (
            note := _image(container.image_uri, settings).note([*container.command, ""])
        ):
            notes.append(note)
    if spec.enable_web_access:
        notes.append(_NO_WEB_ACCESS)
    bucket, _ = bucket_and_name(spec.base_output_directory.output_uri_prefix) or ("", "")
    folder = Store(settings.root).local(f"gs://{bucket}")
    if folder is not None and not folder.is_dir():
        notes.append(_NO_BUCKET.format(name=bucket))
    if spec.tensorboard and not any(pool.slice for pool in found):  # a TPU job's TensorBoard stays empty anyway
        notes.append(_NO_UPLOAD)
    return notes


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One attempt at running a job, perhaps for a trial. Its replicas have addresses that no other attempt has."""

    name: str
    spec: Any
    settings: VertexSettings
    trial: Trial | None = None

    @functools.cached_property
    def _pools(self) -> tuple[WorkerPool, ...]:
        return pools_of(self.spec, self.settings.options.pod_hosts)

    @functools.cached_property
    def units(self) -> Mapping[str, tuple[WorkerPool, Unit]]:
        return {unit.name: (pool, unit) for pool in self._pools for unit in pool.units()}

    @functools.cached_property
    def _addresses(self) -> dict[int, list[str]]:
        ports = iter(free_ports(sum(pool.replicas for pool in self._pools)))
        return {p.number: [f"127.0.0.1:{next(ports)}" for _ in range(p.replicas)] for p in self._pools if p.replicas}

    @functools.cached_property
    def _coordinators(self) -> dict[str, str]:
        """The addresses at which the hosts of each replica with several hosts meet, by the names of the replicas."""
        replicas = {unit.replica for _, unit in self.units.values() if unit.hosts > 1}
        return {
            each: f"127.0.0.1:{port}" for each, port in zip(sorted(replicas), free_ports(len(replicas)), strict=True)
        }

    def task(self, name: str) -> Task:
        """Returns the task to start for a unit; raises CannotLaunch if it cannot be run here."""
        pool, unit = self.units[name]
        folder = job_folder(self.settings, self.name) / name
        work, home = folder / "work", folder / "home"
        try:
            image, words, spec = self._words(pool)
            brings_folders = self._programs.runs(image.entry_point)
            is_theirs = brings_folders or self._programs.runs(words)
            environment = self._environment(unit, spec, folder)
            words = expand(words, environment)
            words[0] = python_environment.program(home, words[0])
            copies = self._packages(spec, folder, environment)
            if pool.slice is not None or is_theirs or self.settings.options.job_environment:
                pod = Pod(self._coordinators[unit.replica], unit.hosts, unit.host) if unit.hosts > 1 else None
                environment = self._programs.environment(environment, is_theirs, pool.slice, pod)
            mode = environment.get(MODE_VARIABLE) or MountMode.FOLDER
            root = str(self.settings.root)
            environment |= {ROOT_VARIABLE: root, MODE_VARIABLE: str(MountMode(mode))}
            words, environment = launched(words, environment, root, mode)
        except (ImageUnknown, PackageError, NamespaceRefused) as error:
            raise CannotLaunch(str(error)) from None
        # The folder of a trial's metrics stays: the service keeps the metrics that were reported before a restart.
        own = (work, home, self._temporary(unit), *copies)
        links = {work / name: path for name, path in self._programs.folders().items()} if brings_folders else {}
        return Task(tuple(words), environment, work, home, own, copies, links)

    def _words(self, pool: WorkerPool) -> tuple[ImageStandIn, list[str], Any]:
        """Returns the image's stand-in, the words of the command, and the part of the spec that names both."""
        kind = pool.spec.WhichOneof("task")
        spec = getattr(pool.spec, kind)
        if kind == "container_spec":
            image = _image(spec.image_uri, self.settings)
            return image, self._programs.with_modules(image.command(spec.command, spec.args)), spec
        image = _image(spec.executor_image_uri, self.settings)
        return image, ["python", "-m", spec.python_module, *spec.args], spec

    def _environment(self, unit: Unit, spec: Any, folder: Path) -> dict[str, str]:
        kept = python_environment.kept(os.environ)
        variables = {
            **kept,
            **python_environment.variables(folder / "home", kept.get("PATH", os.defpath)),
            **self.settings.environment,
            **self.settings.options.job_environment,
            "HOME": str(folder / "home"),
            "TMPDIR": str(self._temporary(unit)),
            **job_variables(JobPlace.of(self.name), self.spec),
            **cluster_variables(self.spec, self._addresses, unit, self.trial),
        }
        if self.trial:
            variables |= {"CLOUD_ML_TRIAL_ID": self.trial.id, "CLOUD_ML_HP_METRIC_FILE": str(folder / _METRIC_FILE)}
        for each in spec.env:
            variables[each.name] = expand([each.value], variables)[0]
        if "PYTHONPATH" in kept and variables["PYTHONPATH"] != kept["PYTHONPATH"]:
            # The modules of this machine's Python are part of the image's stand-in.
            variables["PYTHONPATH"] += os.pathsep + kept["PYTHONPATH"]
        return variables

    def _temporary(self, unit: Unit) -> Path:
        """Returns a folder with a short path, because the paths of sockets in it may have at most 107 bytes."""
        return job_folder(self.settings, self.name) / "tmp" / str(list(self.units).index(unit.name))

    def _packages(self, spec: Any, folder: Path, environment: dict[str, str]) -> dict[Path, Path]:
        """Unpacks the packages of a spec, if it has any, and puts them on the environment's import path.

        It returns their folder with its original, because a process may change the contents of the former.
        """
        if not getattr(spec, "package_uris", ()):
            return {}
        unpacked, packages = folder / "unpacked", folder / "packages"
        make_empty([unpacked])  # from an earlier attempt
        paths = fetch_packages(spec.package_uris, Store(self.settings.root), unpacked)
        found = [str(packages / path.relative_to(unpacked)) for path in paths]
        entries = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
        environment["PYTHONPATH"] = os.pathsep.join([*found, *entries])
        return {packages: unpacked}

    @property
    def _programs(self) -> Programs:
        return find_programs(self.settings.options.programs)


def announced(settings: VertexSettings) -> Standbys:
    """Returns the standby interpreters for the jobs that were announced to a server."""
    expected = settings.options.expected

    def task(number: int) -> Task:
        assert expected is not None
        container = {"imageUri": expected.image}
        pool = {"machineSpec": dict(expected.machine), "replicaCount": 1, "containerSpec": container}
        spec = ParseDict({"workerPoolSpecs": [pool]}, types.CustomJobSpec.pb()())
        # No job has such a number, because job numbers do not begin with a zero.
        attempt = Attempt(f"projects/0/locations/none/customJobs/0{number}", spec, settings)
        [unit] = attempt.units
        return attempt.task(unit)

    return Standbys(task, expected.jobs if expected is not None else 0, settings.options.programs)


def _image(uri: str, settings: VertexSettings) -> ImageStandIn:
    return find_image(uri, settings.options.images, find_programs(settings.options.programs).entry_point)
