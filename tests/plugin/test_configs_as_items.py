"""Configs run as pytest users expect: -n, -x, --lf, -k, JUnit, a terminal, Ctrl-C."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import uuid
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest
from interrupts import processes_with

Run = Callable[..., pytest.RunResult]

NO_SPLIT = ("split = 'validation'", "split = 'test'")


def copy(folder: Path, name: str, *changes: tuple[str, str]) -> None:
    """Copies infer.gin with changes."""
    text = (folder / "infer.gin").read_text()
    for change in changes:
        text = text.replace(*change)
    (folder / name).write_text(text)


@pytest.mark.journey
def test_two_workers_share_the_runs_and_one_table_shows_them(run: Run, folder: Path) -> None:
    copy(folder, "broken.gin", NO_SPLIT)
    copy(folder, "other.gin", ("'score'", "'predict'"))
    result = run("-n2", "-v", "infer.gin", "other.gin", "broken.gin", "--junitxml=out.xml")
    result.assert_outcomes(passed=9, failed=1, skipped=2)
    for name in ("infer", "other", "broken"):
        lines = [line.split() for line in result.outlines if f" {name}.gin::" in line and line.startswith("[gw")]
        assert len({worker for worker, *_ in lines}) == 1  # a run's stages share a process
        assert [line[-1].partition("::")[2] for line in lines] == ["lint", "resolve", "plan", "infer"]
    header = next(i for i, line in enumerate(result.outlines) if line.split()[:3] == ["run", "mode", "slice"])
    table = {line.split()[0]: line.split() for line in result.outlines[header + 1 : header + 4]}
    assert table["infer"][3:7] == table["other"][3:7] == ["ok"] * 4
    assert table["broken"][3:7] == ["ok", "FAILED", "-", "-"]
    result.stdout.fnmatch_lines(["log and output of the failed run are kept in *broken-*"])

    cases = {
        (case.get("classname"), case.get("name")): {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
        for case in ElementTree.parse(folder / "out.xml").iter("testcase")
    }
    assert cases["infer.gin", "plan"]["t5x.mesh"] == "data 8 x model 1"
    assert cases["infer.gin", "infer"]["t5x.sample_answer_score"].startswith("8 lines with ")
    assert cases["infer.gin", "plan"]["t5x.mesh.data"] == "8"
    assert int(cases["infer.gin", "plan"]["t5x.parameters"]) > 0
    assert not [name for of_case in cases.values() for name, value in of_case.items() if " " in name or "\n" in value]
    assert cases["broken.gin", "resolve"]["t5x.finding"].startswith("INF11 broken.gin:")


def test_x_stops_and_lf_comes_back_to_what_failed(run: Run, folder: Path) -> None:
    copy(folder, "broken.gin", NO_SPLIT)
    result = run("-x", "broken.gin", "infer.gin")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["broken *FAILED*"])
    result.stdout.no_fnmatch_line("infer *")  # which had been begun ahead

    copy(folder, "broken.gin")
    result = run("--lf", "broken.gin", "infer.gin", "-v")
    result.assert_outcomes(passed=1)  # resolve; lint, which it needs, is done without being an item
    result.stdout.fnmatch_lines(["broken.gin::resolve PASSED*"])
    result.stdout.fnmatch_lines(["run *lint *resolve *", "broken *ok *ok *"])


def test_a_late_stage_alone_fails_with_the_cause(run: Run, folder: Path) -> None:
    copy(folder, "broken.gin", NO_SPLIT)
    result = run("broken.gin::infer")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["broken.gin:*: error INF11: task sample_answer has no split 'test' *"])


@pytest.mark.journey
def test_runs_in_pytests_own_process_for_a_debugger(run: Run, folder: Path) -> None:
    (folder / "my_tasks.py").write_text("import os\nprint('registered in', os.getpid())\n")
    (folder / "conftest.py").write_text("import os\nprint('pytest is', os.getpid())\n")
    copy(folder, "own.gin", ("DROPOUT_RATE", "import my_tasks\nDROPOUT_RATE"))
    result = run("-s", "--t5x-in-process", "own.gin::resolve")
    result.assert_outcomes(passed=1)
    pids = {words[0] + words[1]: words[2] for line in result.outlines if len(words := line.split()[-3:]) == 3}
    assert pids["registeredin"] == pids["pytestis"]


@pytest.mark.journey
def test_a_terminal_shows_progress_and_ctrl_c_leaves_no_process(folder: Path) -> None:
    (folder / "slow.py").write_text("import time\ntime.sleep(300)\n")
    for name in ("own.gin", "ahead.gin"):
        copy(folder, name, ("DROPOUT_RATE", "import slow\nDROPOUT_RATE"))
    mark = f"T5X_HARNESS_TEST_{uuid.uuid4().hex}"
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "pytest", "--t5x-runtime=embedded", f"--basetemp={folder / 'base'}"]
    command += ["--t5x-ahead=1", "own.gin", "ahead.gin"]
    environment = {**os.environ, mark: "1", "TERM": "xterm"}
    process = subprocess.Popen(command, stdout=terminal, stderr=terminal, stdin=terminal, env=environment, cwd=folder)
    os.close(terminal)
    shown = b""
    while b"[resolve]" not in shown:
        assert select.select([controller], [], [], 120)[0], shown
        shown += os.read(controller, 4096)
    assert len(processes_with(mark)) > 1
    process.send_signal(signal.SIGINT)
    while chunk := read_or_end(controller):
        shown += chunk
    assert process.wait(60) == pytest.ExitCode.INTERRUPTED
    assert b"KeyboardInterrupt" in shown
    assert b"Traceback" not in shown
    assert processes_with(mark) == []
    assert list((folder / "base").glob("t5x-harness*")) == []


def read_or_end(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other side has ended
        return b""
