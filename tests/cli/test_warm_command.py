"""``t5x-harness warm``: a worker for the sessions of a shell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from t5x_harness.cli import main
from t5x_harness.workers import Zygote

HERE = str(Path(__file__).parent)
LIGHT = """
import sys
from t5x_harness import cli, pipeline
from t5x_harness.workers import Zygote
pipeline.worker_for = lambda runtime, *, door: Zygote(preload={preload!r}, door=door)
sys.exit(cli.main(["warm", *sys.argv[1:]]))
"""
Warm = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warm]:
    """Starts the command with other modules than T5X's to import."""
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_serves_until_it_is_ended(warm: Warm, tmp_path: Path, number: int) -> None:
    process = warm()
    assert process.stdout is not None
    name, _, door = process.stdout.readline().strip().removeprefix("export ").partition("=")
    assert name == "T5X_HARNESS_WORKER"
    with Zygote(preload=["json"], kept=Path(door)) as zygote, zygote.start("json:dumps", {}, log=tmp_path / "log"):
        assert zygote.refusal == ""
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 0
    assert told.startswith("importing ")
    assert told.endswith(" has it; Ctrl-C ends it\n")
    assert list((tmp_path / "temporary").iterdir()) == []


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


def test_imports_that_fail_are_told(warm: Warm, tmp_path: Path) -> None:
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
    worker = int(process.stderr.readline().split()[1])
    os.kill(worker, signal.SIGKILL)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert told == "t5x-harness warm: the process has died; start it again\n"


def test_a_file_without_a_folder_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["warm", f"--env-file={tmp_path}/none/warm.env"]) == 2
    assert f"--env-file {tmp_path}/none/warm.env: there is no folder {tmp_path}/none" in capsys.readouterr().err


def test_a_t5x_that_is_not_installed_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warm", "--t5x-runtime=installed"]) == 2
    assert "t5x-harness: no installed T5X was found" in capsys.readouterr().err
