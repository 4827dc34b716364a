"""A forked run whose environment names a store sees it at /gcs, and is otherwise like any other run."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from t5x_harness.google.gcs_mount.mount import MountMode
from t5x_harness.system import processes
from t5x_harness.variables import MODE_VARIABLE, ROOT_VARIABLE
from t5x_harness.workers.errors import RunRaised, WorkerError
from t5x_harness.workers.in_process import InProcess
from t5x_harness.workers.run import RunProcess
from t5x_harness.workers.zygote import Zygote

HERE = str(Path(__file__).parent)
HELLO = "/gcs/my-bucket/data/hello.txt"


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote() as shared:
        yield shared


@pytest.fixture
def start(zygote: Zygote, root: Path, tmp_path: Path) -> Iterator[Callable[..., RunProcess]]:
    runs = []

    def start_run(cwd: Path | str = tmp_path, **environment: str) -> RunProcess:
        env = {ROOT_VARIABLE: str(root), **environment}
        log = tmp_path / f"run{len(runs)}.log"
        runs.append(zygote.start("gcs_objects:Reader", {}, log=log, cwd=cwd, env=env, python_path=[HERE]))
        return runs[-1]

    yield start_run
    for run in runs:
        run.close()


def test_a_run_and_its_children_see_the_store(start: Callable[..., RunProcess], mode: MountMode, bucket: Path) -> None:
    run = start(**{MODE_VARIABLE: mode.value})
    assert run.call("read", path=HELLO) == "hello"
    assert run.call("read_in_child", path=HELLO) == "hello"
    run.call("write", path="/gcs/my-bucket/out.txt", text="from the run")
    assert (bucket / "out.txt").read_text() == "from the run"
    assert (bucket / "data" / "hello.txt").exists()


def test_runs_of_one_zygote_see_their_own_stores(
    start: Callable[..., RunProcess], mode: MountMode, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "buckets" / "my-bucket" / "data"
    other.mkdir(parents=True)
    (other / "hello.txt").write_text("other")
    first = start(**{MODE_VARIABLE: mode.value})
    second = start(**{ROOT_VARIABLE: str(tmp_path / "other"), MODE_VARIABLE: mode.value})
    assert [run.call("read", path=HELLO) for run in (first, second)] == ["hello", "other"]


def test_a_run_without_a_store_sees_none(start: Callable[..., RunProcess]) -> None:
    run = start(**{ROOT_VARIABLE: ""})
    if os.path.isdir("/gcs"):
        pytest.skip("this machine has a /gcs")
    with pytest.raises(RunRaised, match=f"No such file or directory: '{HELLO}'"):
        run.call("read", path=HELLO)


def test_a_run_may_start_in_the_store_and_keeps_no_descriptor(
    start: Callable[..., RunProcess], mode: MountMode
) -> None:
    run = start(cwd="/gcs/my-bucket/data", **{MODE_VARIABLE: mode.value})
    folder, *descriptors = run.call("place")
    assert folder == "/gcs/my-bucket/data"
    assert len(descriptors) == 5  # the standard ones, the connection, and that of the listing itself
    assert run.call("read", path="hello.txt") == "hello"


def test_a_run_without_a_process_of_its_own_cannot_have_fuse(root: Path, tmp_path: Path) -> None:
    env = {ROOT_VARIABLE: str(root), MODE_VARIABLE: "fuse"}
    with InProcess() as workers:
        run = workers.start("gcs_objects:Reader", {}, log=tmp_path / "log", env=env, python_path=[HERE])
        with pytest.raises(WorkerError, match="be as Cloud Storage FUSE in a run without a process of its own"):
            run.call("read", path=HELLO)
    assert ROOT_VARIABLE not in os.environ


def test_a_file_system_ends_with_its_run(start: Callable[..., RunProcess], zygote: Zygote, mode: MountMode) -> None:
    run = start(**{MODE_VARIABLE: mode.value})
    run.call("read", path=HELLO)
    assert len(file_systems(zygote)) == (mode is MountMode.FUSE)
    os.kill(run.pid, signal.SIGKILL)
    run.close()
    deadline = time.monotonic() + 20
    while file_systems(zygote) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not file_systems(zygote)


def file_systems(zygote: Zygote) -> list[int]:
    """Returns the pids of the processes that serve the mounts of this zygote's runs."""
    assert zygote.pid
    found = []
    for pid in processes.descendants(zygote.pid):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if Path(f"/proc/{pid}/comm").read_text() == "gcsfuse\n":
                found.append(pid)
    return found
