"""A zygote without preloads, which is ready in a tenth of a second, and helpers of the tests."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from t5x_harness.workers.run import RunProcess
from t5x_harness.workers.zygote import Zygote

HERE = Path(__file__).parent


# Without PYTHONUNBUFFERED, which some CI systems set, native output is buffered, and runs must cope with that.
ENV = {"PYTHONUNBUFFERED": None}


@pytest.fixture(scope="session", params=["own", "kept"])
def zygote(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Yields the session's own zygote, or one that is kept for it: both must behave alike."""
    if request.param == "own":
        with Zygote(env=ENV) as own:
            yield own
        return
    socket_path = tmp_path_factory.mktemp("kept") / "socket"
    with Zygote(env=ENV, socket_path=socket_path) as keeper:
        keeper.warm()
        with Zygote(env=ENV, kept=socket_path) as kept:
            yield kept


@pytest.fixture
def start(zygote: Zygote, tmp_path: Path) -> Iterator[Callable[..., RunProcess]]:
    """Starts a Calculator, which is closed at the end of the test."""
    runs = []

    def start_run(factory: str = "run_objects:Calculator", **argument: object) -> RunProcess:
        run = zygote.start(factory, argument, log=tmp_path / "run.log", python_path=[str(HERE)])
        runs.append(run)
        return run

    yield start_run
    for run in runs:
        run.close()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Returns a pipe that makes a module wait if it opens and reads it."""
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


@pytest.fixture
def assert_gone() -> Callable[..., None]:
    """Waits for processes to end; a zombie that only process 1, its new parent, must reap counts as ended."""

    def check(*pids: int) -> None:
        deadline = time.monotonic() + 20
        while alive := [pid for pid in pids if _lives(pid)]:
            assert time.monotonic() < deadline, f"still alive: {alive}"
            time.sleep(0.02)

    return check


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
