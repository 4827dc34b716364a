"""Checkpoints at gs:// and on disks that fail: what was reported saved is restored, and every refusal is named."""

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import t5x_in_use

from t5x_harness.google.gcs import FakeGcs
from t5x_harness.google.session import EmulatedCloud
from t5x_harness.resolve.known_errors import reword
from t5x_harness.spec import RunSpec
from t5x_harness.symptoms.recognize import recognize
from t5x_harness.workers.run import RunProcess
from t5x_harness.workers.zygote import Zygote

Job = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.journey


@pytest.fixture(scope="module")
def jobs(
    zygote: Zygote, fake_gcs_server: EmulatedCloud, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunProcess]:
    """The process of the jobs, which uses the emulated Cloud Storage."""
    folder, tests = tmp_path_factory.mktemp("jobs"), Path(__file__).parent
    spec = RunSpec((), runtime=t5x_in_use.name, slice="v3:1x1")
    with zygote.start(
        "small_jobs:open_jobs",
        {"spec": spec.to_json(), "workspace": str(folder)},
        log=folder / "log",
        env=dict(fake_gcs_server.environment()),
        python_path=(str(tests), str(tests.parent / "embedded")),
    ) as process:
        yield process


@pytest.fixture
def job(jobs: RunProcess) -> Job:
    """Runs a job: it restores the newest checkpoint in a folder, and saves further steps."""

    def run(folder: object, *saves: int, **options: Any) -> dict[str, Any]:
        found: dict[str, Any] = jobs.call("run", timeout=90, folder=str(folder), saves=list(saves), **options)
        return found

    return run


@pytest.fixture
def run_folder(fake_gcs: FakeGcs, gcs_bucket: str) -> tuple[str, Path]:
    """The folder of a run in a bucket, and the same on this machine's disk."""
    return f"gs://{gcs_bucket}/run", Path(fake_gcs.environment["T5X_HARNESS_GCS_ROOT"], "buckets", gcs_bucket, "run")


def known(error: str) -> tuple[str, str]:
    found = reword([error])
    assert found is not None, error
    return found.code, found.message


def test_bad_weather_loses_nothing(job: Job, fake_gcs: FakeGcs, run_folder: tuple[str, Path]) -> None:
    address, _ = run_folder
    assert job(address, 2)["saved"] == [2]
    fake_gcs.fail(503, on="upload", match="run/checkpoint_3/**")
    fake_gcs.reset(on="upload", match="run/checkpoint_3/state/**")
    fake_gcs.stall(0.5, on="upload", match="run/checkpoint_3/**", after=6)
    fake_gcs.lose(on="upload", match="run/checkpoint_3/commit_success.txt")
    fake_gcs.fail(503, on="list")
    fake_gcs.fail(503, on="download")
    assert job(address, 3) == {"restored": 2, "saved": [3], "error": ""}
    fake_gcs.truncate(bytes=50, on="download", match="run/checkpoint_3/state/**")
    assert job(address)["restored"] == 3


def test_a_lost_precondition_ends_the_job_and_loses_nothing_that_was_saved(
    job: Job, fake_gcs: FakeGcs, run_folder: tuple[str, Path]
) -> None:
    """This is tensorstore's own: it takes the file for another writer's."""
    address, _ = run_folder
    job(address, 2)
    fake_gcs.fail(412, on="upload", match="run/checkpoint_3/state/ocdbt.process_0/d/*")
    refused = job(address, 3)
    fake_gcs.clear()
    assert refused["saved"] == []
    code, message = known(refused["error"])
    assert (code, message.startswith(f"{address}/checkpoint_3 could not be saved: ")) == ("RUN01", True)
    while (found := job(address))["restored"] is None:  # orbax removes what is unfinished in the background
        assert known(found["error"])[0] == "CKP31"
    assert found["restored"] == 2


def test_a_checkpoint_that_was_not_committed_is_named_and_never_restored(
    job: Job, fake_gcs: FakeGcs, run_folder: tuple[str, Path]
) -> None:
    address, local = run_folder
    job(address, 2)
    fake_gcs.fail(403, on="upload", match="run/checkpoint_3/**commit_success.txt", times=None)
    refused = job(address, 3)
    assert (refused["saved"], "403" in refused["error"]) == ([], True)
    fake_gcs.clear()
    code, message = known(job(address)["error"])
    assert code == "CKP31"
    assert f"{address}/checkpoint_3 " in message
    while (local / "checkpoint_3").exists():  # orbax removes it in the background of the next job
        assert job(address)["restored"] in (None, 2)
    assert job(address)["restored"] == 2


def test_a_copy_without_its_commit_file(job: Job, fake_gcs: FakeGcs, run_folder: tuple[str, Path]) -> None:
    address, local = run_folder
    job(address, 2, 3)
    (local / "checkpoint_3" / "commit_success.txt").unlink()
    assert known(job(address)["error"])[0] == "CKP31"
    second = local.with_name("second")
    job(f"{address[:-3]}second", 2, 3)
    (second / "checkpoint_3" / "commit_success.txt").unlink()
    fake_gcs.put(address.split("/")[2], {"second/checkpoint_3/commit_success.txt": ""})  # the fix of CKP31
    assert job(f"{address[:-3]}second") == {"restored": 3, "saved": [], "error": ""}


@pytest.mark.parametrize("in_bucket", [True, False])
def test_the_newest_checkpoint_is_truncated(
    job: Job, run_folder: tuple[str, Path], tmp_path: Path, in_bucket: bool
) -> None:
    address, local = run_folder if in_bucket else (str(tmp_path / "run"), tmp_path / "run")
    job(address, 2, 3)
    manifest = local / "checkpoint_3" / "state" / "manifest.ocdbt"
    manifest.write_bytes(manifest.read_bytes()[:50])
    error = job(address)["error"]
    code, message = known(error)
    assert (code, message.startswith(f"the checkpoint {address}/checkpoint_3 is damaged: ")) == ("CKP27", True)
    assert [symptom.code for symptom in recognize(error.splitlines())] == ["CKP27"]
    assert (local / "checkpoint_2").is_dir()


def test_a_second_job_in_the_folder_makes_orbax_lose_what_the_first_one_reports_as_saved(
    job: Job, jobs: RunProcess, fake_gcs: FakeGcs, run_folder: tuple[str, Path]
) -> None:
    """This is orbax's own: it removes what has no commit file yet, and the first job writes that file nevertheless."""
    address, local = run_folder
    job(address, 2)
    fake_gcs.stall(3, on="upload", match="run/checkpoint_3/state/commit_success.txt")
    jobs.call("overtaken", timeout=90, folder=address, step=3)
    fake_gcs.clear()
    assert (local / "checkpoint_3" / "commit_success.txt").exists()
    assert not (local / "checkpoint_3" / "state" / "_METADATA").exists()
    assert known(job(address)["error"])[0] == "CKP31"


@pytest.mark.parametrize(
    ("unread", "expected"),
    [
        ("state/_METADATA", r"the checkpoint \S+/checkpoint_2 was removed while it was restored"),
        (
            "state/d/",
            r"the checkpoint \S+/checkpoint_2 has no state/d/\w+: it was removed while it was restored, or copied "
            "without this file",
        ),
    ],
    ids=["metadata", "arrays"],
)
def test_a_training_that_keeps_one_checkpoint_removes_what_an_evaluation_restores(
    job: Job, jobs: RunProcess, fake_gcs: FakeGcs, run_folder: tuple[str, Path], unread: str, expected: str
) -> None:
    """The evaluation reads nothing that begins with ``unread`` before the checkpoint is removed."""
    address, local = run_folder
    job(address, 2)
    fake_gcs.fail(503, on="download", match=f"run/checkpoint_2/{unread}**", times=None)
    with ThreadPoolExecutor(1) as pool:
        evaluated = pool.submit(jobs.call, "evaluated", timeout=90, folder=address, step=2)
        while (local / "checkpoint_2").exists() and not evaluated.done():
            time.sleep(0.05)
        fake_gcs.clear()
        code, message = known(evaluated.result())
    assert code == "CKP32"
    assert re.fullmatch(expected, message)


def test_a_full_disk_is_named_and_the_checkpoint_before_is_restored(job: Job, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    job(folder, 2)
    full = job(folder, 3, most_bytes=300)
    assert full["saved"] == []
    code, message = known(full["error"])
    assert code == "RUN01"
    assert message.startswith(f"no space left on the disk of {folder}/checkpoint_3.orbax-checkpoint-tmp/")
    assert message.endswith(": File too large")
    assert job(folder) == {"restored": 2, "saved": [], "error": ""}
