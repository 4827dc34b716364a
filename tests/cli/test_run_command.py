"""``run`` and ``plan``: the files and output after Ctrl-C, and which folders are kept or stay unchanged."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from interrupts import HANGING, LIGHT, Hanging

from t5x_harness.commands.main import main
from t5x_harness.sample_tasks import CONFIGS
from t5x_harness.spec import Outcome, RunResult, RunSpec, Stage, StageResult
from t5x_harness.system.processes import handle_interrupts

NAMES = ("one.gin", "two.gin")
MAIN = f"{LIGHT}\nimport sys\nfrom t5x_harness.commands import main\nsys.exit(main.main())\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two configs whose resolve stage hangs; one of them has a lint warning."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    shutil.copytree(CONFIGS / "models", tmp_path / "models")
    (tmp_path / "hanging.py").write_text(HANGING)
    text = (CONFIGS / "infer_answer.gin").read_text()
    (tmp_path / "one.gin").write_text(text)
    (tmp_path / "two.gin").write_text(f"{text}\nNO_SUCH_MACRO = 1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "times"), [(("run",), 1), (("run", "--ahead=0"), 1), (("plan",), 2), (("run", "--format=json"), 1)]
)
def test_what_is_known_is_printed(folder: Path, command: Sequence[str], times: int) -> None:
    one_by_one = "--ahead=0" in command
    arguments = [*command, "--gcs=off", "--t5x-runtime=embedded", *NAMES]
    session = Hanging(["-c", MAIN, *arguments], folder, *(NAMES[:1] if one_by_one else NAMES))
    session.interrupt(times=times)
    status, printed, said = session.end()
    assert status == 130
    assert "Traceback" not in printed + said
    assert session.processes == []
    text = said if "--format=json" in command else printed
    assert "infer  v3-8   ok    -" in text
    assert "resolve: interrupted" in text
    assert ("NO_SUCH_MACRO" in text) is not one_by_one
    assert f"{1 if one_by_one else 2} not finished" in text
    if "--format=json" in command:
        assert printed == ""
        assert said.endswith("\nt5x-harness: interrupted; --format json was not written\n")
    else:
        assert said.endswith("t5x-harness: interrupted\n")
    assert list((folder / "temporary").iterdir()) == []


def test_a_second_ctrl_c_finds_it_printed_however_long_the_clearing_up_takes(folder: Path) -> None:
    endless = "import time\nfrom t5x_harness.runs import pool\npool.RunPool.close = lambda *_, **__: time.sleep(600)\n"
    arguments = ["run", "--gcs=off", "--t5x-runtime=embedded", *NAMES]
    session = Hanging(["-c", f"{endless}{MAIN}", *arguments], folder, *NAMES)
    session.interrupt(times=2)
    status, printed, said = session.end()
    assert status == 130
    assert "resolve: interrupted" in printed
    assert "2 not finished" in printed
    assert said.endswith("t5x-harness: interrupted\n\nt5x-harness: interrupted again; ended without clearing up\n")


def test_the_last_three_folders_of_failed_runs_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = Outcome.FAILED

    def run_specs(specs: Sequence[RunSpec], workspace: Path, **_given: Any) -> Iterator[RunResult]:
        (workspace / "01-run").mkdir()
        (workspace / "01-run" / "run.log").touch()
        yield RunResult(specs[0], (StageResult(Stage.RESOLVE, outcome),))

    monkeypatch.setattr("t5x_harness.runs.pool.run_specs", run_specs)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    config = str(CONFIGS / "infer_answer.gin")
    for _ in range(5):
        assert main(["run", config]) == 1
    named = [Path(found) for found in re.findall("logs and outputs are kept in (.*)", capsys.readouterr().err)]
    assert len(named) == 5
    assert set(tmp_path.iterdir()) == set(named[2:])
    outcome = Outcome.PASSED
    assert main(["run", config]) == 0
    assert set(tmp_path.iterdir()) == set(named[2:])


CONFIG = Path(__file__).parents[2] / "sample_tasks" / "configs" / "finetune_classify.gin"


@pytest.mark.stack
@pytest.mark.journey
def test_a_run_leaves_nothing_in_the_home_folder(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k not in ("KERAS_HOME", "XDG_CACHE_HOME")}
    env |= {"HOME": str(tmp_path), "T5X_HARNESS_CACHE_DIR": "off"}
    command = [str(Path(sys.executable).with_name("t5x-harness")), "plan", str(CONFIG)]
    done = subprocess.run(command, env=env, cwd=CONFIG.parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("interrupt", "hangup", "then"),
    [
        (signal.SIG_IGN, signal.SIG_DFL, signal.default_int_handler),
        (signal.SIG_IGN, signal.SIG_IGN, signal.SIG_IGN),
        (signal.SIG_DFL, signal.SIG_DFL, signal.SIG_DFL),
    ],
)
def test_what_a_shell_ignored_for_its_own_sake_is_handled(interrupt: Any, hangup: Any, then: Any) -> None:
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGHUP, hangup)
    handle_interrupts()
    assert signal.getsignal(signal.SIGINT) is then
