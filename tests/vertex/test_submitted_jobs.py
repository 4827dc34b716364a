"""Jobs from gin files to metrics and lineage, on the emulated Vertex AI and with Google's own SDK."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.google.vertex.settings import VertexOptions
from t5x_harness.vertex.cloud import GoogleSession

pytest.importorskip("google.cloud.aiplatform")
pytest.importorskip("google_crc32c", reason="needs the extra google")

IMAGE = "docker.pkg.dev/p/stand-in/image:1"
STAND_IN = Path(__file__).with_name("t5x_stand_in.py")

Submit = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def environment() -> Iterator[Mapping[str, str]]:
    """The variables of a shell with an emulated Google Cloud, in which a script replaces the image of T5X."""
    images = {"*stand-in*": f"{sys.executable} {STAND_IN}"}
    with GoogleSession(vertex=VertexOptions(images=images)) as session:
        variables = {"T5X_HARNESS_VERTEX_IMAGE": IMAGE, "T5X_HARNESS_VERTEX_BUCKET": "jobs-of-tests"}
        yield {**os.environ, **session.environment(), **variables}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "run.gin").write_text("include 'model.gin'\nMIXTURE_OR_TASK_NAME = 'my_task'\nTRAIN_STEPS = 2\n")
    (tmp_path / "model.gin").write_text("DROPOUT_RATE = 0.5\nTASK_FEATURE_LENGTHS = {'inputs': 8}\n")
    return tmp_path


def _run(words: list[str], environment: Mapping[str, str], project: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=project, env=dict(environment), capture_output=True, text=True, check=False)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "t5x_harness", "submit", "--no-check", "--run_mode=train", *arguments]


@pytest.fixture
def submit(environment: Mapping[str, str], project: Path) -> Submit:
    """Runs ``t5x-harness submit`` in the project's folder, in the shell of ``environment``."""
    return lambda *arguments: _run(_command(*arguments), environment, project)


HEAD = f"""
import dataclasses
import json
from t5x_harness.vertex import *

target = VertexTarget("t5x-harness", "us-central1", "jobs-of-tests", {IMAGE!r})
Folder("gs://jobs-of-tests", target.project).create_bucket(target.location)
"""


@pytest.fixture
def script(environment: Mapping[str, str], project: Path) -> Callable[..., Any]:
    """Runs a Python script, preceded by a head, in the shell of ``environment``; reads the JSON that it prints last."""

    def run(text: str, head: str = HEAD) -> Any:
        done = _run([sys.executable, "-c", head + text], environment, project)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_a_job_is_sent_followed_and_read_back(submit: Submit) -> None:
    done = submit("run.gin", "--gin.TRAIN_STEPS=4", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (job,), (sent,) = document["jobs"], document["sent"]
    assert [file["name"] for file in job["staged"]] == ["gin/model.gin", "gin/run.gin"]
    assert sent["state"] == "JOB_STATE_SUCCEEDED"
    assert sent["model_dir"] == job["model_dir"]
    assert sent["metrics"] == {
        "inference_eval/my_task/accuracy": {"1": 50.0, "2": 75.0},
        "train/loss": {"1": 2.5, "2": 1.5},
    }
    assert sent["notes"] == []
    said = done.stderr
    assert "workerpool0-0: run_mode train" in said  # the job's log
    assert said.index("read run.gin") < said.index("read model.gin")  # through /gcs, in Gin's order
    assert "JOB_STATE_RUNNING" in said


SENT = """
import json, sys
from t5x_harness.commands.main import main
assert main(["submit", "--no-check", "--run_mode=train", "run.gin"]) == 0
print(json.dumps(sorted({"google.cloud.aiplatform", "google.cloud.aiplatform_v1"} & sys.modules.keys())))
"""
ATTACHED = """
from google.cloud import aiplatform
aiplatform.init(api_transport="rest")
job = SubmittedJob.attach("JOB", target)
print(json.dumps([job._service.transport.kind, type(job.resource).__name__, job.resource.resource_name]))
"""


@pytest.mark.journey
def test_sending_imports_the_sdks_client_alone_and_uses_its_settings_where_the_sdk_is_imported(
    submit: Submit, script: Any
) -> None:
    assert script(SENT, head="") == ["google.cloud.aiplatform_v1"]
    (sent,) = json.loads(submit("run.gin", "--json").stdout)["sent"]
    found = script(ATTACHED.replace("JOB", sent["job"]))
    assert found == ["rest", "CustomJob", sent["job"]]


def test_a_job_that_fails_is_a_failure_with_the_services_reason(submit: Submit) -> None:
    done = submit("run.gin", "--gin.STAND_IN_STATUS=3")
    assert done.returncode == 1
    assert "failed: The replica workerpool0-0 exited with a non-zero status of 3" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.journey
def test_ctrl_c_cancels_the_job_that_is_followed(
    environment: Mapping[str, str], project: Path, submit: Submit, script: Any
) -> None:
    waits = subprocess.Popen(
        _command("run.gin", "--gin.STAND_IN_SECONDS=600"),
        cwd=project,
        env=dict(environment),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert waits.stderr is not None
    said = []
    for line in waits.stderr:
        said.append(line)
        if "read model.gin" in line:
            break
    again = submit("run.gin", "--gin.STAND_IN_SECONDS=600")
    assert again.returncode == 1
    assert "the same job runs already: projects/" in again.stderr
    assert "Follow it with --attach=" in again.stderr
    waits.send_signal(signal.SIGINT)
    rest = waits.communicate(timeout=120)[1]
    assert waits.returncode == 130
    assert "cancelled: projects/" in rest
    name = again.stderr.split("--attach=")[1].split(",")[0]
    followed = submit(f"--attach={name}")
    assert followed.returncode == 1
    assert "cancelled" in followed.stdout
    assert script(f"print(json.dumps(SubmittedJob.attach('{name}', target).look().state))") == "JOB_STATE_CANCELLED"


INTERRUPTED = """
import signal, sys
from t5x_harness.commands.main import main
from t5x_harness.vertex import launching
from t5x_harness.vertex.submitted import SubmittedJob

class Interrupting:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def once(function, interrupt):
    left = [interrupt]
    def interrupted(*args):
        result = function(*args)
        if left:
            left.pop()()
        return result
    return interrupted

raised = lambda: signal.raise_signal(signal.SIGINT)
dropped = lambda: Interrupting() and None
signal.signal(signal.SIGINT, signal.default_int_handler)
{patch}
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "patch",
    [
        "launching.send = once(launching.send, raised)",
        "launching.send = once(launching.send, dropped)",
        "SubmittedJob.look = once(SubmittedJob.look, dropped)",
    ],
    ids=["while it is sent", "dropped while it is sent", "dropped while it is followed"],
)
def test_no_ctrl_c_leaves_a_job_behind(environment: Mapping[str, str], project: Path, patch: str) -> None:
    told = _interrupted(patch, environment, project, "--gin.STAND_IN_SECONDS=601", "--name=interrupted")
    assert "cancelled: projects/" in told
    assert "NOT cancelled" not in told


def test_a_second_ctrl_c_says_which_job_may_go_on(environment: Mapping[str, str], project: Path) -> None:
    patch = "launching.send = once(launching.send, raised); SubmittedJob.cancel = lambda job: raised()"
    told = _interrupted(patch, environment, project, "--gin.STAND_IN_SECONDS=602", "--name=twice")
    assert "Ctrl-C cut short the cancelling of projects/" in told
    assert "It may go on at cost: see projects/" in told


def _interrupted(patch: str, environment: Mapping[str, str], project: Path, *options: str) -> str:
    """Returns the standard error of a ``submit`` that a patch interrupts, which has to end it."""
    words = [sys.executable, "-c", INTERRUPTED.replace("{patch}", patch), *_command("run.gin", *options)[3:]]
    done = _run(words, environment, project)
    assert done.returncode == 130, done.stderr
    return done.stderr


LOOKS = """
from google.api_core import grpc_helpers

opened, create = [], grpc_helpers.create_channel
grpc_helpers.create_channel = lambda *args, **kwargs: opened.append(args) or create(*args, **kwargs)
job = SubmittedJob.attach("JOB", target)
looks = [job.look() for _ in range(5)]
print(json.dumps([len(opened), len(looks), looks[-1].state]))
"""


@pytest.mark.journey
def test_a_job_that_was_left_alone_is_found_again_and_looked_at_often_through_one_channel(
    submit: Submit, script: Any
) -> None:
    (sent,) = json.loads(submit("run.gin", "--no-wait", "--json").stdout)["sent"]
    assert "state" not in sent
    channels, looks, state = script(LOOKS.replace("JOB", sent["job"]))
    assert (channels, looks) == (1, 5)
    assert state.startswith("JOB_STATE_")
    (end,) = json.loads(submit(f"--attach={sent['job']}", "--json").stdout)["sent"]
    assert (end["state"], end["model_dir"]) == ("JOB_STATE_SUCCEEDED", sent["model_dir"])
    assert end["metrics"]["train/loss"] == {"1": 2.5, "2": 1.5}


AT_ONCE = """
from t5x_harness.vertex import launching

def job():
    bindings = ["STAND_IN_SECONDS = 600", "TRAIN_STEPS = 77"]
    return T5XJob.from_gin("run.gin", run_mode="train", machine="v3-8", target=target, bindings=bindings)

send, others = launching.send, []

def send_after_another(message, target):
    launching.send = send
    others.append(LaunchedJob.launch(job()).submitted)
    return send(message, target)

launching.send = send_after_another
try:
    LaunchedJob.launch(job())
except DuplicateError as error:
    [other] = others
    said = str(error).replace(other.name, "OTHER").replace(other.id, "ID").replace(other.display_name, "DISPLAY")
    print(json.dumps([said, other.look().state]))
    other.cancel()
"""


def test_of_two_that_send_the_same_job_at_once_the_second_is_cancelled(script: Any) -> None:
    """Neither finds the other's job when it looks, because both look before they send."""
    said, state = script(AT_ONCE)
    assert re.fullmatch(
        r"the same job was sent at the same moment: OTHER \(DISPLAY\), so projects/\d+/locations/us-central1/"
        r"customJobs/\d+ was cancelled\. Follow the first with --attach=ID, or start another with --duplicate",
        said,
    )
    assert state != "JOB_STATE_CANCELLED"


def test_what_is_no_job_is_told(submit: Submit) -> None:
    done = submit("--attach=12345")
    assert done.returncode == 1
    assert "the job 12345 cannot be read: " in done.stderr
    done = submit("--attach=my-job")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "t5x-harness: --attach: 'my-job' names no job: give its number, or "
        "projects/t5x-harness/locations/us-central1/customJobs/NUMBER"
    )


TRACKED = """
from google.cloud import aiplatform
board = create_tensorboard("board", target)
target = dataclasses.replace(target, tensorboard=board, experiment="my-experiment")
where = target.where
job = T5XJob.from_gin(
    "run.gin", run_mode="train", machine="v3-8", target=target, name="tracked", tfds_data_dir="gs://data/tfds"
)
launched = LaunchedJob.launch(job)
end = launched.follow(seconds=300)
upload_events(launched.model_dir, "uploaded-later", board, target)
run = aiplatform.ExperimentRun(launched.tracked.name, experiment="my-experiment", **where)
execution, = run.get_executions()
curves = {
    e.name: {run.display_name: run.read_time_series_data() for run in aiplatform.TensorboardRun.list(e.resource_name)}
    for e in aiplatform.TensorboardExperiment.list(board, **where)
}
print(json.dumps({
    "notes": end.notes,
    "params": run.get_params(),
    "metrics": run.get_metrics(),
    "state": run.get_state(),
    "artifacts": {a.display_name: [a.schema_title, a.uri] for a in run.get_artifacts()},
    "execution": [execution.schema_title, execution.metadata["resource_name"], execution.state.name],
    "inputs": sorted(a.display_name for a in execution.get_input_artifacts()),
    "outputs": sorted(a.display_name for a in execution.get_output_artifacts()),
    "job": launched.submitted.name,
    "model_dir": launched.model_dir,
    "stage": job.stage,
    "frame": end.metrics.frame().to_dict(),
    "table": aiplatform.Experiment("my-experiment", **where).get_data_frame().iloc[0].to_dict(),
    "display_name": launched.submitted.display_name,
    "curves": {
        experiment: {
            f"{run}/{tag}": [point.scalar.value for point in series.values]
            for run, tags in runs.items() for tag, series in tags.items()
        }
        for experiment, runs in curves.items()
    },
}))
"""


@pytest.mark.journey
def test_a_job_is_tracked_with_parameters_metrics_and_lineage(script: Any) -> None:
    pytest.importorskip("pandas")
    found = script(TRACKED)
    assert found["notes"] == []
    assert found["params"]["DROPOUT_RATE"] == 0.5
    assert found["params"]["MIXTURE_OR_TASK_NAME"] == "my_task"
    assert found["params"]["TASK_FEATURE_LENGTHS"] == "{'inputs': 8}"
    assert found["params"]["job"] == found["job"]
    assert found["params"]["machine"] == "cloud-tpu, 8 TPU_V3 cores"
    assert found["params"]["lineage"].startswith("https://console.cloud.google.com/vertex-ai/")
    assert found["metrics"] == {
        "train/loss": 1.5,
        "inference_eval/my_task/accuracy": 75.0,
        "inference_eval/my_task/accuracy/max": 75.0,
        "inference_eval/my_task/accuracy/max_step": 2,
    }
    assert found["state"] == "COMPLETE"
    folder = found["model_dir"]
    assert found["artifacts"] == {
        "my_task": ["system.Dataset", "gs://data/tfds"],
        "run-config": ["system.Artifact", found["stage"]],
        "model": ["system.Model", folder],
        "config.gin": ["system.Artifact", f"{folder}/config.gin"],
        "model-info.txt": ["system.Artifact", f"{folder}/model-info.txt"],
    }
    assert found["execution"] == ["system.CustomJobExecution", found["job"], "COMPLETE"]
    assert found["inputs"] == ["my_task", "run-config"]
    assert found["outputs"] == ["config.gin", "model", "model-info.txt"]
    assert found["frame"]["train/loss"] == {"1": 2.5, "2": 1.5}
    assert found["table"]["metric.train/loss"] == 1.5
    assert found["table"]["param.TRAIN_STEPS"] == 2
    curves = {"inference-eval-my-task/accuracy": [50.0, 75.0], "train/loss": [2.5, 1.5]}  # the uploader's names
    assert found["curves"] == {found["display_name"]: curves, "uploaded-later": curves}
