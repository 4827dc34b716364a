"""``t5x-harness warm``: a worker for the sessions of a shell."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.workers.errors import ZygoteFailed
from t5x_harness.workers.keeping import KeptPlace
from t5x_harness.workers.zygote import Zygote

HERE = str(Path(__file__).parent)
LIGHT = """
import os, sys
from t5x_harness.commands import main as cli
from t5x_harness.runs import pool
from t5x_harness.workers.zygote import Zygote
pool.worker_for = lambda runtime, **given: Zygote(preload={preload!r}, python_path=[os.getcwd()], **given)
sys.exit(cli.main(["warm", *sys.argv[1:]]))
"""
Warm = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warm]:
    """Starts the command, which imports other modules instead of T5X."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    started = []

    def start(*arguments: str, preload: tuple[str, ...] = ("json",)) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", LIGHT.format(preload=preload), *arguments]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def refusal_of_a_session(socket_path: Path, folder: Path, *preload: str) -> str:
    with Zygote(preload=preload or ["json"], python_path=[str(folder)], kept=socket_path) as zygote:
        zygote.await_ready()
        return zygote.refusal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_serves_until_it_is_ended(warm: Warm, tmp_path: Path, number: int) -> None:
    process = warm()
    assert process.stdout is not None
    name, _, socket_path = process.stdout.readline().strip().removeprefix("export ").partition("=")
    assert name == "T5X_HARNESS_WORKER"
    assert refusal_of_a_session(Path(socket_path), tmp_path) == ""
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 0
    assert told.startswith("importing ")
    assert told.endswith(f"\nprocess {process.pid} keeps it; Ctrl-C or kill {process.pid} ends it\n")
    assert list((tmp_path / "temporary").iterdir()) == []


def test_it_imports_again_when_a_session_has_found_a_changed_file(warm: Warm, tmp_path: Path) -> None:
    file = tmp_path / "heavy_module.py"
    file.write_text("")
    process = warm(preload=("heavy_module",))
    assert process.stdout is not None
    assert process.stderr is not None
    socket_path = Path(process.stdout.readline().strip().removeprefix("export T5X_HARNESS_WORKER="))
    file.write_text("no Python")
    changed = f"{file} has changed since it was imported: t5x-harness warm is importing again"
    with pytest.raises(ZygoteFailed):
        refusal_of_a_session(socket_path, tmp_path, "heavy_module")
    told = [process.stderr.readline() for _ in range(4)]
    assert told[2] == f"{file} changed: importing again\n"
    assert told[3] == "t5x-harness warm: Importing heavy_module in the worker process failed:\n"
    while "The next session has it tried again\n" not in told:
        told.append(process.stderr.readline())
    file.write_text("VALUE = 2")
    refusals = [refusal_of_a_session(socket_path, tmp_path, "heavy_module")]
    assert process.stderr.readline() == f"{file} changed: importing again\n"
    while refusals[-1]:
        refusals.append(refusal_of_a_session(socket_path, tmp_path, "heavy_module"))
    assert set(refusals) == {changed, ""}
    process.terminate()
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 0
    assert set(rest.splitlines()) <= {f"{file} changed: importing again"}
    assert list((tmp_path / "temporary").iterdir()) == []


def test_in_the_background_of_a_script_it_is_ended_by_sigint_too(tmp_path: Path) -> None:
    script = f"{sys.executable} -c '{LIGHT.format(preload=('json',)).replace(chr(39), chr(34))}' & echo $!; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as shell:
        assert shell.stdout is not None
        command = int(shell.stdout.readline())
        assert shell.stdout.readline().startswith("export T5X_HARNESS_WORKER=")
        os.kill(command, signal.SIGINT)
        assert shell.wait(60) == 0
        assert shell.stdout.read() == ""


def test_the_lines_are_in_a_file_once_it_is_ready(warm: Warm, tmp_path: Path) -> None:
    process = warm("--env-file=warm.env")
    while not (tmp_path / "warm.env").exists():
        assert process.poll() is None
        time.sleep(0.01)
    assert (tmp_path / "warm.env").read_text().startswith("export T5X_HARNESS_WORKER=/")
    process.terminate()
    printed, _ = process.communicate(timeout=60)
    assert printed == ""
    assert not (tmp_path / "warm.env").exists()


def test_imports_that_fail_are_told(warm: Warm) -> None:
    process = warm(preload=("no_such_module",))
    printed, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert printed == ""
    assert "t5x-harness warm: Importing no_such_module in the worker process failed:" in told


def test_a_worker_that_dies_is_told(warm: Warm) -> None:
    process = warm()
    assert process.stdout is not None
    process.stdout.readline()
    assert process.stderr is not None
    process.stderr.readline()
    assert process.stderr.readline().startswith(f"process {process.pid} keeps it")
    (worker,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(worker), signal.SIGKILL)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert told == "t5x-harness warm: the process with the imports was killed; start it again\n"


def test_a_file_without_a_folder_and_a_t5x_that_is_not_installed_are_refused(harness: Any, tmp_path: Path) -> None:
    said = harness(2, "warm", f"--env-file={tmp_path}/none/warm.env").err
    assert f"--env-file {tmp_path}/none/warm.env: there is no folder {tmp_path}/none" in said
    assert "t5x-harness: no installed T5X was found" in harness(2, "warm", "--t5x-runtime=installed").err


@pytest.mark.usefixtures("warm")
def test_stop_says_that_nothing_is_kept(harness: Callable[..., Any]) -> None:
    assert harness(0, "warm", "--stop").err == "no process keeps imports\n"


def test_stop_ends_what_a_session_has_left_and_the_warm_of_this_shell(
    warm: Warm, harness: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = warm()
    assert process.stdout is not None
    socket_path = process.stdout.readline().strip().removeprefix("export T5X_HARNESS_WORKER=")
    monkeypatch.setenv("T5X_HARNESS_KEEP", "1")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    place = KeptPlace.find(os.environ, "a T5X")
    assert place is not None
    with Zygote(preload=["json"], place=place) as zygote:
        zygote.await_ready()
        left = zygote.pid
    monkeypatch.setenv("T5X_HARNESS_WORKER", socket_path)
    assert harness(0, "warm", "--stop").err == "".join(
        f"process {pid} ends as soon as no session uses it\n" for pid in (left, process.pid)
    )
    process.communicate(timeout=60)
    assert process.returncode == 0
    deadline = time.monotonic() + 20
    while place.folder.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.journey
@pytest.mark.stack
def test_the_second_run_of_a_project_waits_for_no_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("T5X_HARNESS_KEEP", "1")
    command = Path(sys.executable).with_name("t5x-harness")
    root = Path(__file__).parents[2]
    config = root / "sample_tasks" / "configs" / "eval_classify.gin"

    def call(*arguments: str) -> str:
        done = subprocess.run([command, *arguments], cwd=root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    stays = "; kept for 15 min (t5x-harness warm --stop ends it)"
    assert stays in call("run", str(config), "--until=plan")
    again = call("run", str(config), "--until=plan")
    assert "importing T5X" not in again
    assert "passed in" in again
    assert " ends as soon as no session uses it\n" in call("warm", "--stop")
