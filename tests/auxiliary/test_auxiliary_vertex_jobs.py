"""Auxiliary jobs on the emulated Vertex AI, for a train job with its folder in a bucket."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from train_desk import EVAL_OF_SAMPLES, Desk, killed_in, until

from t5x_harness.commands.main import main
from t5x_harness.google.gcs import FakeGcs
from t5x_harness.google.vertex_admin import FakeVertex
from t5x_harness.sample_tasks import CONFIGS
from t5x_harness.vertex.cloud import GoogleSession

pytest.importorskip("google.cloud.aiplatform_v1")
pytest.importorskip("google_crc32c", reason="needs the extra google")


class Cloud:
    """A train job's folder in a bucket, and the command for it, whose jobs run the stand-in."""

    def __init__(self, desk: Desk, bucket: str, vertex: FakeVertex, root: str) -> None:
        self.desk = desk
        self.address = f"gs://{bucket}/run"
        self.folder = Path(root) / "buckets" / bucket / "run"
        self._bucket = bucket
        self._vertex = vertex

    def words(self, *more: str) -> list[str]:
        """Returns the arguments of the command."""
        return [
            *("auxiliary", "train.gin", "--on=vertex", f"--model_dir={self.address}", f"--bucket={self._bucket}"),
            *("--auxiliary_job_mixtures=numbers", "--auxiliary_job_gin_file=eval.gin", "--replace_gin_file=True"),
            *(
                "--no-plan",
                "--image=docker.pkg.dev/p/auxiliary/image:1",
                f"--env=STAND_IN_CALLS={self.desk.notes}",
                *more,
            ),
        ]

    def start(self, *more: str) -> subprocess.Popen[str]:
        """Starts the command in a separate process."""
        words = [sys.executable, "-m", "t5x_harness", *self.words(*more)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records in the journal, sorted by step."""
        found = (json.loads(path.read_text()) for path in self.folder.glob("auxiliary/*/journal/*/*.json"))
        return sorted(found, key=lambda record: record["step"])

    @property
    def specs(self) -> list[Mapping[str, Any]]:
        """The specs of the jobs on Vertex AI, with their labels."""
        return [job.resource["jobSpec"] | {"labels": job.resource["labels"]} for job in self._vertex.jobs()]


@pytest.fixture
def put(fake_gcs: FakeGcs, gcs_bucket: str) -> Callable[..., None]:
    """Writes objects into the train job's folder."""

    def write(*names: str) -> None:
        fake_gcs.put(gcs_bucket, {f"run/{name}": "x" for name in names})

    return write


@pytest.fixture
def cloud(vertex: FakeVertex, gcs_bucket: str, desk: Desk, fake_gcs_server: GoogleSession) -> Cloud:
    return Cloud(desk, gcs_bucket, vertex, fake_gcs_server.endpoints.root)


def test_finished_checkpoints_have_jobs(
    cloud: Cloud, put: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkpoint that orbax has not committed or T5X is still renaming does not count as finished."""
    put("checkpoint_5/state/x", "checkpoint_6/checkpoint", "checkpoint_6.tmp-1/checkpoint")
    put("checkpoint_10/state/x", "checkpoint_10/commit_success.txt", "checkpoint_30/checkpoint")
    options = ("--label=team=t5x", "--priority=low", "--auxiliary_job_platform=v2-8", "--auxiliary_job_cell=us-east1")
    options += ("--boot-disk-type=pd-standard", "--boot-disk-size-gb=200", "--disable-retries")
    options += ("--network=projects/12/global/networks/vpc", "--reservation=any", "--timeout=90m")
    assert main(cloud.words(*options, "--auxiliary_job_cell=us-central1")) == 0
    shown = capsys.readouterr().out
    assert f"{cloud.address}, eval: 2 succeeded; newest checkpoint: checkpoint_30 of 30 steps\n" in shown
    calls = cloud.desk.calls
    assert [call["CHECKPOINT_PATH"] for call in calls] == [
        f"{cloud.address}/auxiliary/eval/held/{step}/checkpoint_{step}" for step in (10, 30)
    ]
    assert {call["EVAL_OUTPUT_DIR"] for call in calls} == {cloud.address}
    for spec in cloud.specs:
        pool = spec["workerPoolSpecs"][0]
        assert "--run_mode=eval" in pool["containerSpec"]["args"]
        assert pool["machineSpec"]["acceleratorType"] == "TPU_V2"
        assert spec["labels"]["team"] == "t5x"
        assert pool["diskSpec"] == {"bootDiskType": "pd-standard", "bootDiskSizeGb": 200}
        assert pool["machineSpec"]["reservationAffinity"] == {"reservationAffinityType": "ANY_RESERVATION"}
        assert spec["network"] == "projects/12/global/networks/vpc"
        assert spec["scheduling"] == {"strategy": "SPOT", "timeout": "5400s", "disableRetries": True}
    assert main(cloud.words(*options[:3])) == 0
    assert len(cloud.specs) == 2
    assert not (cloud.folder / "auxiliary" / "eval" / "controller.json").exists()


def test_a_killed_controller_is_followed_by_one_that_repeats_nothing(
    cloud: Cloud, put: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    put(
        "checkpoint_10/state/x",
        "checkpoint_10/commit_success.txt",
        "checkpoint_30/state/x",
        "checkpoint_30/commit_success.txt",
    )
    cloud.desk.jobs_do("wait")
    first = cloud.start()
    until(lambda: cloud.records and cloud.records[0]["state"] == "running", "the job", first)
    assert main(cloud.words()) == 1
    said = capsys.readouterr().err
    assert f"another controller has these auxiliary jobs: process {first.pid} on " in said
    first.send_signal(signal.SIGKILL)
    first.communicate()
    cloud.desk.jobs_do("")
    assert main(cloud.words()) == 0
    assert [record["state"] for record in cloud.records] == ["succeeded", "succeeded"]
    assert len(cloud.specs) == 2


@pytest.mark.journey
def test_a_job_whose_machine_is_taken_away_is_started_again(
    cloud: Cloud, put: Callable[..., None], vertex: FakeVertex
) -> None:
    put("checkpoint_30/state/x", "checkpoint_30/commit_success.txt")
    vertex.preempt("eval-numbers-30-*")
    cloud.desk.jobs_do("wait")
    controller = cloud.start("--priority=low", "--disable-retries")  # disables the service's own retries
    until(lambda: cloud.records and cloud.records[0]["attempt"] == 2, "the second attempt", controller)
    cloud.desk.jobs_do("")
    _, said = controller.communicate()
    assert "checkpoint_30, numbers was killed, and is started again\n" in said
    assert [record["state"] for record in cloud.records] == ["succeeded"]
    assert len(cloud.specs) == 2


def test_one_that_dies_after_a_start_finds_the_job_by_its_label(
    cloud: Cloud, put: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put("checkpoint_30/state/x", "checkpoint_30/commit_success.txt")
    with killed_in("journal.Journal.update", monkeypatch):
        main(cloud.words())
    assert cloud.records[0]["state"] == "starting"
    assert main(cloud.words()) == 0
    assert len(cloud.specs) == 1
    assert "checkpoint_30, numbers is found again: projects/" in capsys.readouterr().err


def test_it_ends_with_the_train_job_and_runs_modules_of_ones_own(
    cloud: Cloud, put: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    put("checkpoint_10/state/x", "checkpoint_10/commit_success.txt")
    own = ("--auxiliary_job_build_target=stand_in_job", f"--env=PYTHONPATH={Path(__file__).parent}")
    assert main(cloud.words(*own, "--once")) == 0
    (spec,) = cloud.specs
    container = spec["workerPoolSpecs"][0]["containerSpec"]
    assert container["command"] == ["python", "-m", "stand_in_job"]
    assert [arg for arg in container["args"] if "run_mode" in arg] == []
    capsys.readouterr()
    train_job = cloud.records[0]["job"].rpartition("/")[2]  # any job that has ended
    assert main(cloud.words(f"--train_job={train_job}")) == 0
    assert "eval: 1 succeeded; newest checkpoint: checkpoint_10 of 30 steps\n" in capsys.readouterr().out
    assert main(cloud.words("--train_job=1")) == 1
    assert "t5x-harness auxiliary: the job 1 cannot be read: " in capsys.readouterr().err


def test_a_job_that_fails_and_one_that_may_not_be_sent(
    cloud: Cloud, put: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    put("checkpoint_30/state/x", "checkpoint_30/commit_success.txt")
    cloud.desk.jobs_do("fail")
    assert main(cloud.words()) == 1
    shown, said = capsys.readouterr()
    assert "checkpoint_30, numbers failed: failed: The replica workerpool0-0 exited with a non-zero status of 3" in said
    assert "1 failed" in shown
    assert main(cloud.words("--name=large", "--auxiliary_job_platform=v3-512")) == 1
    assert "more than the 16 that --tpu-max-chip-hours" in capsys.readouterr().err
    assert len(cloud.specs) == 1


def test_a_checkpoint_is_held_by_a_copy_where_orbax_removes_folders(
    cloud: Cloud, put: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    put("checkpoint_30/state/x", "checkpoint_30/commit_success.txt")
    copy = cloud.folder / "auxiliary" / "eval" / "held" / "30" / "checkpoint_30"
    seen = []
    monkeypatch.setattr(
        "t5x_harness.auxiliary.vertex_jobs.VertexJobs.find",
        lambda *_: seen.append(sorted(path.name for path in copy.rglob("*") if path.is_file())),
    )
    assert main(cloud.words()) == 0
    assert seen == [["commit_success.txt", "x"]]
    assert not copy.exists()
    (call,) = cloud.desk.calls
    assert call["CHECKPOINT_PATH"] == f"{cloud.address}/auxiliary/eval/held/30/checkpoint_30"
    assert (cloud.folder / "auxiliary" / "commit_success.txt").exists()


def test_other_resources(cloud: Cloud, put: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    """The machine in Vertex AI's notation, an account, and a strategy other than that of low priority."""
    put("checkpoint_30/state/x", "checkpoint_30/commit_success.txt")
    account = "jobs@my-project.iam.gserviceaccount.com"
    options = ("--auxiliary_job_platform=TPU_V3:8", f"--service-account={account}", "--priority=low")
    waiting = ("--strategy=FLEX_START", "--max-wait-duration=2h")
    assert main(cloud.words(*options, *waiting)) == 0
    (spec,) = cloud.specs
    assert spec["workerPoolSpecs"][0]["machineSpec"] == {
        "machineType": "cloud-tpu",
        "acceleratorType": "TPU_V3",
        "acceleratorCount": 8,
    }
    assert spec["serviceAccount"] == account
    assert spec["scheduling"]["strategy"] == "FLEX_START"
    assert spec["scheduling"]["maxWaitDuration"] == "7200s"
    assert "not checked: the plan of the jobs (--no-plan)\n" in capsys.readouterr().err


@pytest.mark.usefixtures("imported")
def test_what_does_not_fit_its_slice_is_refused_before_anything_starts(
    cloud: Cloud, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("seqio")
    (tmp_path / "eval.gin").write_text(EVAL_OF_SAMPLES)
    words = [word for word in cloud.words("--auxiliary_job_mixtures=sample_classify") if word != "--no-plan"]
    start = [sys.executable, "-c", f"open({str(tmp_path / 'started')!r}, 'w')"]
    words = [word for word in words if word != "--auxiliary_job_mixtures=numbers"]
    options = (f"--gin_search_paths={CONFIGS}", "--auxiliary_job_platform=v3-32", "--timeout=1h")
    assert main([*words, *options, "--", *start]) == 1
    said = capsys.readouterr().err
    assert "error MSH02: the batch size of dataset is 8, and the mesh's data axis has 32 positions with" in said
    assert said.endswith("t5x-harness auxiliary: nothing was started: fix what was found, or give --no-plan\n")
    assert (cloud.specs, cloud.records, (tmp_path / "started").exists()) == ([], [], False)
