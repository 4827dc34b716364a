"""Everything that a job's containers get: their image's command, variables, stand-ins, devices of a pod, and a run."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format
from job_service import PARENT, attempt, pool, processes_of, spec_of, until

from t5x_harness.google.vertex.jobs import driver
from t5x_harness.google.vertex.jobs.endings import JobState
from t5x_harness.google.vertex.jobs.launching import policy_of
from t5x_harness.google.vertex.jobs.programs import ImageUnknown, find_image
from t5x_harness.google.vertex.jobs.replicas import (
    JobPlace,
    Trial,
    Unit,
    cluster_variables,
    expand,
    job_variables,
    pools_of,
)
from t5x_harness.google.vertex.metadata import stores
from t5x_harness.google.vertex.settings import VertexOptions, VertexSettings
from t5x_harness.runtime.import_hooks import BOOTSTRAP_PATH
from t5x_harness.slices.pod import Pod
from t5x_harness.variables import (
    BRIEF_VARIABLE,
    POD_VARIABLE,
    ROOT_VARIABLE,
    SHRINK_VARIABLE,
    SLICE_VARIABLE,
    STANDINS_VARIABLE,
)
from t5x_harness.vertex.cloud import PROGRAMS

PLACE = JobPlace.of("projects/12/locations/us-central1/customJobs/34")
TPU = {"machine_type": "cloud-tpu", "accelerator_type": "TPU_V3", "accelerator_count": 8}
CONTEXT = "projects/12/locations/us-central1/metadataStores/default/contexts"


def test_a_job_knows_its_place_its_output_and_its_run() -> None:
    output = {"output_uri_prefix": "gs://b/out/"}
    names = {"experiment": f"{CONTEXT}/exp", "experiment_run": f"{CONTEXT}/exp-run-1", "tensorboard": "projects/12/tb"}
    assert job_variables(PLACE, spec_of(base_output_directory=output, **names)) == {
        "CLOUD_ML_PROJECT_ID": "12",
        "CLOUD_ML_REGION": "us-central1",
        "CLOUD_ML_JOB_ID": "34",
        "AIP_MODEL_DIR": "gs://b/out/model/",
        "AIP_CHECKPOINT_DIR": "gs://b/out/checkpoints/",
        "AIP_TENSORBOARD_LOG_DIR": "gs://b/out/logs/",
        "AIP_TENSORBOARD_RESOURCE_NAME": "projects/12/tb",
        "AIP_EXPERIMENT_NAME": "exp",
        "AIP_EXPERIMENT_RUN_NAME": "run-1",
    }


def test_cluster_spec_and_tf_config_of_several_pools() -> None:
    spec = spec_of(worker_pool_specs=[pool("a"), {}, pool("b", replicas=2), pool("c")])
    addresses = {0: ["h:1"], 2: ["h:2", "h:3"], 3: ["h:4"]}
    variables = cluster_variables(spec, addresses, Unit(2, 1), Trial("7", "job"))
    cluster = json.loads(variables["CLUSTER_SPEC"])
    assert cluster["cluster"] == {"workerpool0": ["h:1"], "workerpool2": ["h:2", "h:3"], "workerpool3": ["h:4"]}
    assert cluster["environment"] == "cloud"
    assert cluster["task"] == {"type": "workerpool2", "index": 1, "trial": "7"}
    assert cluster["job"]["workerPoolSpecs"][0]["containerSpec"]["command"] == ["a"]
    tensorflow = json.loads(variables["TF_CONFIG"])
    assert tensorflow["cluster"] == {"chief": ["h:1"], "ps": ["h:2", "h:3"], "evaluator": ["h:4"]}
    assert tensorflow["task"] == {"type": "ps", "index": 1, "trial": "7"}


def test_empty_pools_have_no_replicas_and_keep_the_numbers_of_others() -> None:
    spec = spec_of(worker_pool_specs=[pool("a"), {}, pool("b", replicas=2)])
    names = [unit.name for each in pools_of(spec, 4) for unit in each.units()]
    assert names == ["workerpool0-0", "workerpool2-0", "workerpool2-1"]


@pytest.mark.parametrize(
    ("word", "expanded"),
    [
        ("--dir=$(DIR)/x", "--dir=gs://b/x"),
        ("$(DIR)$(DIR)", "gs://bgs://b"),
        ("$(OTHER)", "$(OTHER)"),
        ("$$(DIR)", "$(DIR)"),
        ("$DIR ${DIR} $$", "$DIR ${DIR} $$"),
    ],
)
def test_references_in_arguments(word: str, expanded: str) -> None:
    assert expand([word], {"DIR": "gs://b"}) == [expanded]


def test_a_container_has_its_variables_and_not_the_server_s(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "hunter2")
    names = {"ONE": "1", "BOTH": "$(ONE) and $(CLOUD_ML_REGION)"}
    spec = pool("sh", "-c", "env; echo sees $(BOTH)", env=names)
    job = service.ended(service.create({"worker_pool_specs": [spec]}))
    said = service.said(job)
    assert "sees 1 and us-central1" in said
    assert not [line for line in said if "hunter2" in line]
    here = next(line for line in said if line.startswith("HOME="))
    assert here.startswith(f"HOME={service.api.services.settings.folder}{os.sep}")


def test_what_variables_hold_is_in_no_file_of_the_job(service: Any) -> None:
    job = service.ended(service.create({"worker_pool_specs": [pool("no-such-program", env={"TOKEN": "hunter2"})]}))
    assert job.state == JobState.FAILED
    files = [path for path in service.api.services.settings.folder.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"hunter2" in path.read_bytes()]
    assert "hunter2" not in str(job.error) + "".join(service.said(job, "service"))


def test_a_container_sees_the_store_at_gcs(service: Any, bucket: Path) -> None:
    (bucket / "in").write_text("from the store")
    job = service.ended(service.shell("cat /gcs/b/in > /gcs/b/out"))
    assert job.state == JobState.SUCCEEDED, service.said(job)
    assert (bucket / "out").read_text() == "from the store"


IMAGES = {"gcr.io/p/t5x-*": "python 'my main.py'", "gcr.io/p/*": "python -m main", "gcr.io/bare/*": ""}
PREBUILT = "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-14.py310:latest"


@pytest.mark.parametrize(
    ("uri", "command", "args", "words"),
    [
        ("gcr.io/p/t5x-fork", [], ["--a"], ["python", "my main.py", "--a"]),  # the first glob counts
        ("gcr.io/p/else", [], [], ["python", "-m", "main"]),
        ("gcr.io/p/else", ["sh"], ["-c", "true"], ["sh", "-c", "true"]),
        (PREBUILT, [], ["--a"], ["--a"]),  # has no entry point
    ],
)
def test_a_command_takes_the_place_of_the_entry_point(
    uri: str, command: list[str], args: list[str], words: list[str]
) -> None:
    assert find_image(uri, IMAGES).command(command, args) == words


NO_WORDS = (
    "the image {uri} has no entry point here, and container_spec has neither command nor args: give one of them, or an "
    "entry point in the map images"
)
UNKNOWN = (
    "no local command stands for the image {uri}, whose entry point is not known, and containers are not run here. "
    "Give container_spec a command, or name the entry point in the map images (--vertex-image): "
    "{{{glob!r}: 'python -m trainer.task'}}"
)


@pytest.mark.parametrize(
    ("uri", "args", "message", "glob"),
    [
        ("gcr.io/bare/i:1", [], NO_WORDS, ""),
        ("gcr.io/q/a:1", ["--a"], UNKNOWN, "gcr.io/q/a*"),
        ("gcr.io/q/a@sha256:12", ["--a"], UNKNOWN, "gcr.io/q/a*"),
        ("localhost:5000/a:1", ["--a"], UNKNOWN, "localhost:5000/a*"),
        ("a", ["--a"], UNKNOWN, "a*"),
    ],
)
def test_an_image_without_a_command_is_refused_with_the_line_to_add(
    uri: str, args: list[str], message: str, glob: str
) -> None:
    with pytest.raises(ImageUnknown, match=re.escape(message.format(uri=uri, glob=glob))):
        find_image(uri, IMAGES).command([], args)


def environment_of(folder: Path, options: VertexOptions, of: dict[str, Any]) -> Any:
    """Returns the variables of a job's only process."""
    tried = attempt(VertexSettings(folder / "root", folder / "jobs", options=options), of)
    [unit] = tried.units
    return tried.task(unit).environment


@pytest.mark.parametrize(("image", "cheaply"), [("gcr.io/p/t5x:1", True), ("gcr.io/p/plain:1", False)])
def test_t5x_compiles_and_prepares_as_cheaply_as_in_runs_here(tmp_path: Path, image: str, cheaply: bool) -> None:
    trains = pool("true", image=image, env={"XLA_FLAGS": "--xla_dump_to=there"}, **TPU)
    environment = environment_of(tmp_path, VertexOptions(programs=PROGRAMS), trains)
    assert "--xla_dump_to=there" in environment["XLA_FLAGS"]
    assert ("--xla_backend_optimization_level=0" in environment["XLA_FLAGS"]) is cheaply
    assert environment.get(BRIEF_VARIABLE) == ("1" if cheaply else None)


@pytest.mark.parametrize(
    ("image", "project", "is_set_up"),
    [
        ("gcr.io/p/t5x:1", "/project", True),
        ("gcr.io/p/t5x:1", "", True),
        ("gcr.io/p/trainer:1", "/project", True),  # its program may use T5X
        ("gcr.io/p/trainer:1", "", False),
    ],
)
def test_a_job_makes_stand_ins_if_the_server_was_started_so(
    image: str, project: str, is_set_up: bool, tmp_path: Path
) -> None:
    images = {"*/trainer*": "python -m trainer.task"}
    given = {STANDINS_VARIABLE: project} if project else {}
    options = VertexOptions(programs=PROGRAMS, job_environment=given, images=images)
    options = VertexOptions.from_dict(options.to_dict())
    trains = pool(image=image)
    trains["container_spec"]["args"] = ["--run_mode=train"]
    environment = environment_of(tmp_path, options, trains)
    assert environment[ROOT_VARIABLE] == str(tmp_path / "root")
    assert environment.get(STANDINS_VARIABLE, "") == project
    assert (BOOTSTRAP_PATH in environment.get("PYTHONPATH", "").split(os.pathsep)) == is_set_up


@pytest.mark.parametrize("own", ["0", None])
def test_a_jobs_own_variable_wins_over_the_servers(own: str | None, tmp_path: Path) -> None:
    options = VertexOptions(programs=PROGRAMS, job_environment={SHRINK_VARIABLE: "1"})
    trains = pool(image="gcr.io/p/t5x:1", env={SHRINK_VARIABLE: own} if own else {}, **TPU)
    assert environment_of(tmp_path, options, trains)[SHRINK_VARIABLE] == (own or "1")


EXPERIMENT = f"{PARENT}/metadataStores/default/contexts/tuning"
SAYS_ITS_RUN = 'echo "$AIP_EXPERIMENT_NAME $AIP_EXPERIMENT_RUN_NAME"'


@pytest.fixture
def experiment(service: Any) -> str:
    """Returns the name of an experiment's context in the service's form, with the project's number."""
    name: str = service.api.services.projects.with_number(EXPERIMENT)
    store = types.MetadataStore.pb()()
    service.api.services.resources.create(name.partition("/contexts/")[0], store)
    service.api.services.resources.create(
        name, stores.CONTEXT.message(display_name="tuning", schema_title="system.Experiment")
    )
    return name


def test_a_job_without_a_run_has_one_made_in_its_experiment(service: Any, experiment: str) -> None:
    created = service.shell(SAYS_ITS_RUN, experiment=EXPERIMENT)
    job_id = created.name.rpartition("/")[2]
    assert created.job_spec.experiment_run == f"{experiment}-{job_id}"
    run = service.api.services.resources.get(created.job_spec.experiment_run, stores.CONTEXT.message)
    assert (run.display_name, run.schema_title) == (job_id, "system.ExperimentRun")
    assert json_format.MessageToDict(run.metadata) == {"_params": {}, "_metrics": {}, "_state": "RUNNING"}
    assert list(run.parent_contexts) == [experiment]
    assert stores.linked(service.api.services, experiment, stores.CHILDREN) == {run.name}
    job = service.ended(created)
    assert job.job_spec.experiment_run == run.name
    assert service.said(job) == [f"tuning {job_id}"]


def test_a_job_with_a_run_keeps_it(service: Any, experiment: str) -> None:
    job = service.ended(service.shell(SAYS_ITS_RUN, experiment=EXPERIMENT, experiment_run=f"{EXPERIMENT}-mine"))
    assert job.job_spec.experiment_run == f"{experiment}-mine"
    assert service.said(job) == ["tuning mine"]
    assert stores.linked(service.api.services, experiment, stores.CHILDREN) == set()


def test_an_experiment_that_is_not_there_gets_no_run(service: Any) -> None:
    job = service.ended(service.shell(SAYS_ITS_RUN, experiment=EXPERIMENT))
    assert job.job_spec.experiment_run == ""
    assert service.said(job) == ["tuning "]


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
