"""One compilation at a time on a machine: the next waits, says so, and goes on when the first ends, however it ends."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.aot.compiling import Compiler
from t5x_harness.aot.libtpu import Until
from t5x_harness.aot.refusals import NotCompiled
from t5x_harness.aot.request import ProgramSpec
from t5x_harness.commands.main import main
from t5x_harness.spec import RunSpec
from t5x_harness.workers.errors import RunDied
from t5x_harness.workers.run import OnProgress, RunProcess

COMPILES = """
import sys, time
from pathlib import Path
from t5x_harness.aot.libtpu import one_at_a_time
with one_at_a_time(Path(sys.argv[1]), lambda: print("waits", flush=True)):
    print("compiles", flush=True)
    time.sleep(300)
"""
TRAIN = ProgramSpec("train", "train_dataset_cfg", "", {}, {})
LOWERED = {"fingerprint": "f", "operations": 10, "mesh": {"data": 8}, "devices": [0], "state_bytes": 4}


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_the_next_process_goes_on_when_the_first_is_killed(
    tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    command = [sys.executable, "-c", COMPILES, str(tmp_path / "kept" / "aot.lock")]
    for said in ("compiles", "waits"):
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert read_line(processes[-1]) == said
    first, second = processes
    first.kill()
    first.wait()
    assert read_line(second) == "compiles"


class FakeRun(RunProcess):
    """A process that lowers, waits for another, and dies as it compiles."""

    pid, log = 0, Path("run.log")

    def call(
        self, method: str, /, *, timeout: float | None = None, on_progress: OnProgress | None = None, **_: Any
    ) -> Any:
        if method == "lower":
            return LOWERED
        if method == "await_turn":
            assert timeout is None  # another's work is not this run's time
            assert on_progress is not None
            return on_progress({"stage": "aot", "waiting": True})
        raise RunDied("The run was killed by SIGKILL")

    def close(self) -> None:
        """Does nothing."""


def test_progress_says_what_is_compiled_and_that_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T5X_HARNESS_CACHE_DIR", "off")
    notes: list[object] = []
    compiler = Compiler(lambda folder, spec: FakeRun(), tmp_path, on_progress=lambda event: notes.append(event["note"]))
    with pytest.raises(NotCompiled, match="the TPU compiler ended its process"):
        compiler.compile(TRAIN, RunSpec(("a.gin",)), Until.MEMORY, ", 2 layers")
    assert notes == [
        "lowering train, 2 layers",
        "train, 2 layers: waiting for another compilation",
        "compiling train, 2 layers",
    ]


@pytest.mark.parametrize("command", ["plan", "run"])
def test_without_the_compiler_asking_for_it_is_a_mistake_that_names_its_installation(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "libtpu", None)
    monkeypatch.chdir(tmp_path)
    Path("a.gin").write_text("")
    assert importlib.util.find_spec("libtpu") is None
    assert main([command, "--aot", "a.gin"]) == 2
    assert capsys.readouterr().err == (
        "t5x-harness: --aot: the TPU compiler is not installed: python -m pip install 't5x-harness[aot]'\n"
    )


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()
