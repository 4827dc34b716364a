"""Custom jobs as clients see them: states, errors, times, commands, cancellation, deletion."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from job_service import IMAGE, PARENT, pool, processes_of, spec_of, until

from t5x_harness.google.vertex import settings as vertex_settings
from t5x_harness.google.vertex.jobs import driver
from t5x_harness.google.vertex.jobs.endings import JobState, publish
from t5x_harness.google.vertex.jobs.guarded import Watched
from t5x_harness.google.vertex.jobs.launching import CannotLaunch, job_folder, notes_on


def test_a_job_runs_and_succeeds_and_is_not_changed_by_a_late_cancellation(service: Any) -> None:
    created = service.shell("echo out; echo err >&2")
    assert created.state == JobState.QUEUED
    job = service.ended(created)
    assert job.state == JobState.SUCCEEDED
    assert service.said(job) == ["out", "err"]
    assert not job.HasField("error")
    times = [job.create_time, job.start_time, job.end_time, job.update_time]
    assert times == sorted(times, key=lambda time: time.ToNanoseconds())
    assert not job.web_access_uris
    service.cancel(job)
    assert service.get(job) == job


def test_a_job_that_fails_names_the_replica_the_status_and_the_logs(service: Any) -> None:
    job = service.ended(service.shell("exit 3"))
    assert job.state == JobState.FAILED
    assert job.error.code == 3
    _, project, _, _, _, job_id = job.name.split("/")
    assert job.error.message == (
        "The replica workerpool0-0 exited with a non-zero status of 3. To find out more about why your job exited "
        f"please check the logs: https://console.cloud.google.com/logs/viewer?project={project}"
        f"&resource=ml_job%2Fjob_id%2F{job_id}&advancedFilter=resource.type%3D%22ml_job%22%0A"
        f"resource.labels.job_id%3D%22{job_id}%22"
    )
    assert service.said(job, "service") == [
        "Waiting for job to be provisioned.",
        "Waiting for training program to start.",
        job.error.message,
        "Job failed.",
    ]


def test_every_state_is_told_in_order(make_service: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[JobState] = []

    def recorded(api: Any, name: str, kind: type[Any], state: JobState, error: Any = None) -> None:
        told.append(state)
        publish(api, name, kind, state, error)

    monkeypatch.setattr(driver, "publish", recorded)
    service = make_service(queued_seconds=0.05, pending_seconds=0.05, running_seconds=0.05)
    job = service.shell("true")
    assert job.state == JobState.QUEUED
    service.ended(job)
    assert told == [JobState.PENDING, JobState.RUNNING, JobState.SUCCEEDED]


def test_a_job_that_ends_at_once_is_running_for_as_long_as_is_promised(
    make_service: Callable[..., Any], tmp_path: Path
) -> None:
    service = make_service(running_seconds=3600)
    job = service.shell("echo done")
    service.until_said(job, "done")
    until(lambda: processes_of(tmp_path), lambda left: not left)
    assert service.get(job).state == JobState.RUNNING


def test_no_clock_is_waited_for_on_the_way_to_running(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[tuple[float | None, bool]] = []
    wait = Watched.wait

    def recorded(self: Watched, seconds: float | None) -> Any:
        waits.append((seconds, bool(self._units)))
        return wait(self, seconds)

    monkeypatch.setattr(Watched, "wait", recorded)
    service.ended(service.shell("true"))
    assert waits[:2] == [(0.0, False)] * 2  # leaves the queue, and then PENDING
    assert waits[2][1], "its process runs"


def test_an_image_whose_entry_point_nobody_knows_fails_the_job_and_says_how_to_name_it(service: Any) -> None:
    job = service.ended(service.create({"worker_pool_specs": [pool(image="gcr.io/p/other:1")]}))
    assert job.state == JobState.FAILED
    assert not job.HasField("start_time")
    assert job.error.message.startswith("t5x-harness: no local command stands for the image gcr.io/p/other:1, whose")


def test_a_running_job_is_cancelled_with_all_that_it_started(service: Any) -> None:
    job = service.shell("(setsid sleep 100 &) ; trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.1; done")
    service.until_said(job, "ready")
    service.cancel(job)
    assert service.get(job).state in (JobState.CANCELLING, JobState.CANCELLED)
    job = service.ended(job)
    assert job.state == JobState.CANCELLED
    assert (job.error.code, job.error.message) == (1, "CANCELED")
    assert "told" in service.said(job)
    assert not processes_of(service.api.services.settings.folder)


def test_a_pending_job_is_cancelled_without_having_run(make_service: Callable[..., Any]) -> None:
    service = make_service(pending_seconds=3600)
    job = service.in_state(service.shell("echo ran"), JobState.PENDING)
    service.cancel(job)
    job = service.get(job)
    assert job.state == JobState.CANCELLED
    assert not job.HasField("start_time")
    assert service.said(job) == []


@pytest.mark.parametrize(
    "scheduling",
    [
        {"timeout": {"seconds": 30 * 86400}},
        {"strategy": "FLEX_START", "max_wait_duration": {"seconds": 315_576_000_000}},
    ],
)
def test_a_job_may_have_longer_than_the_system_waits_at_once(service: Any, scheduling: dict[str, Any]) -> None:
    job = service.ended(service.shell("sleep 0.1", scheduling=scheduling))
    assert (job.state, job.error.message) == (JobState.SUCCEEDED, "")


def test_a_job_that_has_ended_is_deleted_with_its_log_and_files_and_a_running_one_is_not(service: Any) -> None:
    running = service.in_state(service.shell("sleep 100"), JobState.RUNNING)
    assert service.refused("DeleteCustomJob", name=running.name) == (
        "FAILED_PRECONDITION",
        f"The CustomJob {running.name} is in the state JOB_STATE_RUNNING and cannot be deleted: cancel it first",
    )
    job = service.ended(service.shell("echo hello"))
    folder = service.api.services.settings.folder / job.name.rpartition("/")[2]
    assert (folder / "workerpool0-0.log").read_text() == "hello\n"
    assert service.ask("DeleteCustomJob", name=job.name).done
    assert not folder.exists()
    assert service.said(job) == []
    assert service.refused("GetCustomJob", name=job.name)[0] == "NOT_FOUND"


def test_jobs_are_listed_newest_first_and_by_filters(service: Any) -> None:
    names = [service.ended(service.shell(f"exit {status}")).name for status in (0, 1, 0)]
    listed = service.ask("ListCustomJobs", parent=PARENT).custom_jobs
    assert [job.name for job in listed] == names[::-1]
    failed = service.ask("ListCustomJobs", parent=PARENT, filter="state=JOB_STATE_FAILED").custom_jobs
    assert [job.name for job in failed] == [names[1]]


def test_what_only_the_service_sets_is_not_taken_from_a_client(service: Any) -> None:
    given = {"display_name": "job", "job_spec": {"worker_pool_specs": [pool("true")]}, "state": 4, "name": "../../x"}
    job = service.ask("CreateCustomJob", parent=PARENT, custom_job=given)
    assert job.state == JobState.QUEUED
    assert job.name.rpartition("/")[2].isdigit()
    assert service.ended(job).state == JobState.SUCCEEDED


@pytest.mark.parametrize("job_id", ["..", "%2e%2e", "1/../../x", "1#log", ""])
def test_no_id_leads_anywhere_but_to_a_job(service: Any, job_id: str) -> None:
    for method in ("GetCustomJob", "CancelCustomJob", "DeleteCustomJob"):
        code, _ = service.refused(method, name=f"{PARENT}/customJobs/{job_id}")
        assert code in ("NOT_FOUND", "INVALID_ARGUMENT")
    with pytest.raises(CannotLaunch, match="is not an id of a job"):
        job_folder(service.api.services.settings, f"{PARENT}/customJobs/{job_id}")


def test_replicas_of_several_pools_find_each_other(service: Any) -> None:
    listen = (
        "import json, os, socket; spec = json.loads(os.environ['CLUSTER_SPEC']); "
        "host, port = spec['cluster']['workerpool0'][0].split(':'); s = socket.create_server((host, int(port))); "
        "[print(s.accept()[0].makefile().read()) for _ in range(2)]"
    )
    connect = (
        "import json, os, socket, time\nspec = json.loads(os.environ['CLUSTER_SPEC'])\n"
        "host, port = spec['cluster']['workerpool0'][0].split(':')\n"
        "while True:\n"
        "    try: s = socket.create_connection((host, int(port)))\n"
        "    except ConnectionRefusedError: time.sleep(0.02)\n"
        "    else: break\n"
        "s.sendall('{type} {index}'.format(**spec['task']).encode())"
    )
    pools = [pool("python", "-c", listen), pool("python", "-c", connect, replicas=2)]
    job = service.ended(service.create({"worker_pool_specs": pools}))
    assert job.state == JobState.SUCCEEDED
    assert sorted(service.said(job)) == ["workerpool1 0", "workerpool1 1"]


def test_a_reset_ends_what_runs_and_forgets_it(service: Any) -> None:
    job = service.in_state(service.shell("sleep 100"), JobState.RUNNING)
    service.api.reset()
    assert not processes_of(service.api.services.settings.folder)
    assert service.refused("GetCustomJob", name=job.name)[0] == "NOT_FOUND"
    assert service.ended(service.shell("true")).state == JobState.SUCCEEDED


def test_what_the_rules_only_warn_of_is_in_the_job_s_log(service: Any) -> None:
    job = service.shell("true", scheduling={"max_wait_duration": {"seconds": 60}})
    lines = until(lambda: service.said(job, "service"), lambda lines: any("max_wait_duration" in s for s in lines))
    assert IMAGE not in "".join(lines)
    service.ended(job)


BOARD = {"tensorboard": f"{PARENT}/tensorboards/1", "service_account": "a@p.iam.gserviceaccount.com"}
NO_UPLOAD = (
    "the service uploads what a job writes to AIP_TENSORBOARD_LOG_DIR to its TensorBoard; the emulation does not: "
    "aiplatform.upload_tb_log does it for a run that has ended"
)
NO_SHELL = (
    "there is no interactive shell here: web_access_uris stays empty; on the service it has an address for each "
    "replica while the job runs"
)
NO_BUCKET = (
    "base_output_directory is in the bucket no-bucket, which does not exist: on the service nothing can be written "
    "there; here a folder that a job makes at /gcs/no-bucket becomes the bucket. Create it before the job: "
    "gcloud storage buckets create gs://no-bucket"
)
NO_POD = (
    "v3-512 has 64 hosts; here it is one process with all of its 512 devices, as slices of more than 16 hosts are "
    "(pod_hosts)"
)


@pytest.mark.parametrize(
    ("cores", "fields", "notes"),
    [
        (0, BOARD, [NO_UPLOAD]),
        (8, BOARD, []),
        (32, {}, []),
        (512, {}, [NO_POD]),
        (0, {"enable_web_access": True}, [NO_SHELL]),
        (0, {"base_output_directory": {"output_uri_prefix": "gs://no-bucket/run"}}, [NO_BUCKET]),
        (0, {"base_output_directory": {"output_uri_prefix": "gs://bucket/run"}}, []),
    ],
)
def test_what_is_otherwise_on_the_service_is_noted(
    make_service: Callable[..., Any], cores: int, fields: dict[str, Any], notes: list[str]
) -> None:
    settings = make_service(pod_hosts=16).api.services.settings
    (settings.root / "buckets/bucket").mkdir(parents=True)
    tpu = {"machine_type": "cloud-tpu", "accelerator_type": "TPU_V3", "accelerator_count": cores} if cores else {}
    assert notes_on(spec_of(worker_pool_specs=[pool("true", **tpu)], **fields), settings) == notes


@pytest.mark.parametrize(("gibibytes", "hosts"), [(1, 4), (20, 20), (100, 32)])
def test_a_slice_has_as_many_hosts_as_have_the_memory(
    monkeypatch: pytest.MonkeyPatch, gibibytes: int, hosts: int
) -> None:
    monkeypatch.setattr(vertex_settings, "available_bytes", lambda: gibibytes * 2**30)
    assert vertex_settings.VertexOptions().pod_hosts == hosts


def test_an_unknown_image_with_a_command_runs_and_a_reducer_waits(service: Any) -> None:
    mine, reducer = "gcr.io/other/trainer:1", "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"
    pools = [pool("echo", "ran", image=mine), {}, pool(image=reducer)]
    job = service.ended(service.create({"worker_pool_specs": pools}))
    assert job.state == JobState.SUCCEEDED
    assert service.said(job) == ["ran"]
    assert service.said(job, "service")[:2] == [
        f"the image {mine} is not run: its command 'echo' is looked for on this machine, with the Python environment "
        "of t5x-harness in place of the image's",
        f"{reducer} reduces nothing here: its replicas wait until the job ends",
    ]


def test_the_configuration_of_the_tools_own_page_fails_for_its_program(service: Any) -> None:
    """The request is the one that gcloud makes from the page's config.yaml, with a command that only its image has."""
    image = "gcr.io/ucaip-test/ucaip-training-test"
    starts = pool("start", "port=8500", image=image, machine_type="n1-highmem-2")
    job = service.ended(service.create({"worker_pool_specs": [starts]}))
    assert "non-zero status of 127." in job.error.message
    assert service.said(job) == ["t5x-harness: start: command not found"]
    assert f"the image {image} is not run: its command 'start' is looked for" in service.said(job, "service")[0]
