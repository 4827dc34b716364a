"""A train job's folder with checkpoints, and jobs that only record their arguments."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.commands.main import main

TRAIN = (
    "from __gin__ import dynamic_registration\nimport __main__ as train_script\nfrom t5x import utils\n"
    "include 't5x/examples/t5/t5_1_1/tiny.gin'\ninclude 't5x/configs/runs/pretrain.gin'\n"
    "MIXTURE_OR_TASK_NAME = 'numbers'\nTASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}\nTRAIN_STEPS = 30\n"
    "MODEL_DIR = 'model'\n"
)
EVAL = (
    "from __gin__ import dynamic_registration\nimport __main__ as eval_script\nfrom t5x import utils\n"
    "include 't5x/examples/t5/t5_1_1/tiny.gin'\ninclude 't5x/configs/runs/eval.gin'\n"
    "DROPOUT_RATE = 0.0\n"
)
EVAL_OF_SAMPLES = """
from __gin__ import dynamic_registration
import __main__ as eval_script
from t5x import utils
import t5x_harness.sample_tasks.tasks
include 'models/tiny_bytes.gin'
include 't5x/configs/runs/eval.gin'
TASK_FEATURE_LENGTHS = {'inputs': 80, 'targets': 12}
DROPOUT_RATE = 0.0
utils.DatasetConfig:
  split = 'validation'
  batch_size = 8
"""
FINETUNE = (
    "from __gin__ import dynamic_registration\nimport __main__ as train_script\n"
    "include 't5x/examples/t5/t5_1_1/tiny.gin'\ninclude 't5x/configs/runs/finetune.gin'\n"
    "TASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}\n"
)


class Desk:
    """A working directory with configs and with the records of jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "model"
        self.notes = folder / "calls"
        self.notes.mkdir()
        for name, text in (("train", TRAIN), ("eval", EVAL), ("finetune", FINETUNE)):
            (folder / f"{name}.gin").write_text(text)

    def checkpoint(self, *steps: int, by_orbax: bool = False) -> Path:
        """Writes finished checkpoints, and returns the last one."""
        for step in steps:
            path = self.model / f"checkpoint_{step}"
            (path / "state").mkdir(parents=True)
            (path / "state" / "weights").write_text(str(step))
            if not by_orbax:
                (path / "checkpoint").write_text("")
        return path

    def jobs_do(self, how: str) -> None:
        """Sets how jobs behave from now on."""
        (self.notes / "how").write_text(how)

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The arguments that jobs recorded, in the order in which the jobs were started."""
        return [json.loads(path.read_text()) for path in sorted(self.notes.glob("*.json"))]

    def words(self, *more: str, mixtures: str = "numbers") -> list[str]:
        """Returns the arguments of a command whose jobs run the stand-in."""
        return [
            "auxiliary",
            "train.gin",
            f"--auxiliary_job_mixtures={mixtures}",
            "--auxiliary_job_gin_file=eval.gin",
            "--replace_gin_file",
            "--auxiliary_job_build_target=stand_in_job",
            *more,
        ]

    def run(self, *more: str, mixtures: str = "numbers") -> int:
        """Runs the command in this process."""
        return main(self.words(*more, mixtures=mixtures))

    def start(self, *more: str, mixtures: str = "numbers") -> subprocess.Popen[str]:
        """Starts the command in a separate process."""
        words: Sequence[str] = [sys.executable, "-m", "t5x_harness", *self.words(*more, mixtures=mixtures)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder)


def until(condition: Callable[[], Any], what: str, process: subprocess.Popen[str] | None = None) -> None:
    """Waits for a condition that is expected to become true, while a process works."""
    deadline = time.monotonic() + 300
    while not condition():
        assert process is None or process.poll() is None, (what, process and process.communicate())
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class Killed(BaseException):
    """An exception that represents a SIGKILL."""


@contextlib.contextmanager
def killed_in(method: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ends the block when it calls a method, which is named by its module in ``auxiliary``, its class and its name."""

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(f"t5x_harness.auxiliary.{method}", die)
        try:
            yield
        except Killed:
            return
    pytest.fail(f"{method} was not called")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk in the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setenv("STAND_IN_CALLS", str(tmp_path / "calls"))
    (tmp_path / "pyproject.toml").write_text("")
    return Desk(tmp_path)
