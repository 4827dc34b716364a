"""Ctrl-C in a session with runs: nothing is left, all results so far are printed, and a second one spoils nothing."""

import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from interrupts import HANGING, LIGHT, Hanging

CONFIGS = ("one.gin", "two.gin")
COMMAND = ("-m", "pytest", "--t5x-runtime=embedded", "--basetemp=base")


@pytest.fixture
def hanging(folder: Path) -> Path:
    """A folder with two configs whose resolve hangs."""
    (folder / "conftest.py").write_text(LIGHT)
    (folder / "hanging.py").write_text(HANGING)
    for name in CONFIGS:
        shutil.copy(folder / "infer.gin", folder / name)
    return folder


def ended_by_a_second_ctrl_c(session: Hanging, sign: Path) -> list[list[str]]:
    """Interrupts a session, and again once a file exists; returns the rows of the table that it prints."""
    session.interrupt()
    while not sign.exists():
        session.wait()
    session.interrupt()
    status, printed, said = session.end()
    assert status == pytest.ExitCode.INTERRUPTED
    assert "Traceback" not in printed + said
    assert said.endswith("\nt5x-harness: interrupted again; ended without clearing up\n")
    return rows(printed)


def rows(printed: str) -> list[list[str]]:
    """Returns the words of the table's rows, up to the stages."""
    lines = iter(printed.splitlines())
    head = next(line for line in lines if line.startswith("run "))
    assert head.split()[:5] == ["run", "mode", "slice", "lint", "resolve"]
    return sorted(line.split()[:5] for line in lines if line.startswith(("one ", "two ")))


@pytest.mark.parametrize("options", [(), ("--t5x-ahead=0",), ("-n", "2")])
def test_ctrl_c_ends_all_and_prints_what_is_known(hanging: Path, options: Sequence[str]) -> None:
    at_once = CONFIGS[:1] if options == ("--t5x-ahead=0",) else CONFIGS
    session = Hanging([*COMMAND, *options, *CONFIGS], hanging, *at_once)
    session.interrupt()
    status, printed, said = session.end()
    assert status == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt" in printed
    assert "Traceback" not in printed + said
    reported = CONFIGS if options == ("-n", "2") else CONFIGS[:1]
    assert rows(printed) == [[name.removesuffix(".gin"), "infer", "v3-8", "ok", "-"] for name in reported]
    assert session.processes == []
    assert list((hanging / "base").glob("**/t5x-harness*")) == []


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_a_second_ctrl_c_spoils_nothing(hanging: Path, options: Sequence[str]) -> None:
    session = Hanging([*COMMAND, *options, *CONFIGS], hanging, *CONFIGS)
    session.interrupt(times=2)
    status, printed, said = session.end()
    assert status == pytest.ExitCode.INTERRUPTED
    assert "Traceback" not in printed + said
    for _ in range(1000):  # on a busy machine it ends without cleaning up, and they end after it
        if not session.processes:
            break
        session.wait()
    assert session.processes == []


def test_a_test_that_hangs_in_its_teardown_is_ended_by_a_second_ctrl_c(hanging: Path) -> None:
    (hanging / "test_own.py").write_text(
        "import time, pytest\n"
        "from pathlib import Path\n"
        "@pytest.fixture(scope='session', autouse=True)\n"
        "def slow():\n    yield\n    Path('tearing_down').touch()\n    time.sleep(600)\n"
        "def test_own(t5x_run): t5x_run('one.gin')\n"
    )
    session = Hanging([*COMMAND, "test_own.py"], hanging, "one.gin")
    assert ended_by_a_second_ctrl_c(session, hanging / "tearing_down") == [["one", "infer", "v3-8", "ok", "-"]]


def test_what_workers_know_is_printed_before_a_second_ctrl_c_ends_all(hanging: Path) -> None:
    (hanging / "conftest.py").write_text(
        f"{LIGHT}\n"
        "import time, pytest\n"
        "from pathlib import Path\n"
        "@pytest.hookimpl(trylast=True)\n"
        "def pytest_sessionfinish(session):\n"
        "    if not hasattr(session.config, 'workerinput'):\n"
        "        Path('clearing_up').touch()\n"
        "        time.sleep(600)\n"
    )
    session = Hanging([*COMMAND, "-n", "2", *CONFIGS], hanging, *CONFIGS)
    assert ended_by_a_second_ctrl_c(session, hanging / "clearing_up") == [
        [name.removesuffix(".gin"), "infer", "v3-8", "ok", "-"] for name in CONFIGS
    ]


def test_workers_of_a_killed_controller_are_interrupted(hanging: Path) -> None:
    (hanging / "conftest.py").write_text(
        f"{LIGHT}\n"
        "import ctypes\n"
        "class Signals:\n"
        "    def pytest_runtest_logreport(self, report):\n"
        "        number = ctypes.c_int()\n"
        "        ctypes.CDLL(None).prctl(2, ctypes.byref(number))  # PR_GET_PDEATHSIG\n"
        "        open(report.nodeid.partition('::')[0] + '.signal', 'w').write(str(number.value))\n"
        "def pytest_configure(config):\n"
        "    if hasattr(config, 'workerinput'):\n"
        "        config.pluginmanager.register(Signals())\n"
    )
    session = Hanging([*COMMAND, "-n", "2", *CONFIGS], hanging, *CONFIGS)
    os.kill(session.pid, signal.SIGTERM)
    for _ in range(3000):
        if not session.processes:
            break
        session.wait()
    session.end()
    assert session.processes == []
    assert [(hanging / f"{name}.signal").read_text() for name in CONFIGS] == [str(int(signal.SIGINT))] * 2
