"""Fixtures that all tests share, and an environment that no user's setting leaks into."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import t5x_in_use
from module_places import places_of

from t5x_harness.runs.pool import worker_for
from t5x_harness.variables import WORKER_SOCKET_VARIABLE
from t5x_harness.workers.zygote import Zygote

if TYPE_CHECKING:
    from t5x_harness.google.vertex.settings import VertexOptions

pytest_plugins = ["pytester", "shared_process", "skips", "time_left"]

# No test asserts a time, because a busy machine is not an error.
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")


# Folders whose tests need no JAX, TensorFlow or server, except tests marked `stack`: they are the first to find what is
# wrong with most changes. `tox run -e fast` runs them in an environment without the stack.
FAST = ("packaging", "slices", "doctor", "cli", "lint", "report", "reports", "runs")


# Sessions that tests start do not need the plugins of the suite's libraries, which take half of the startup time.
FOREIGN = " ".join(
    f"-p no:{plugin.name}"
    for plugin in importlib.metadata.entry_points(group="pytest11")
    if not plugin.name.startswith(("t5x_harness", "xdist"))
)


def _is_fast(path: Path) -> bool:
    return path.relative_to(Path(__file__).parent).parts[0] in FAST


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Chooses the T5X whose behavior is tested: the embedded one, unless the installed one is requested."""
    if config.getoption("--t5x-runtime") == "installed":
        t5x_in_use.name = "installed"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skips files for another T5X and, with ``-m fast``, files whose imports may need what is not installed."""
    in_tests = collection_path.parent == Path(__file__).parent
    aside = config.option.markexpr == "fast" and in_tests and not _is_fast(collection_path)
    return True if aside or t5x_in_use.is_other(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks fast tests and moves them to the front."""
    for item in items:
        if _is_fast(item.path) and not item.get_closest_marker("stack"):
            item.add_marker(pytest.mark.fast)
        if t5x_in_use.name == "installed" and (mark := item.get_closest_marker("embedded")):
            item.add_marker(pytest.mark.skip(reason=f"of the embedded T5X alone: {mark.args[0]}"))
    items.sort(key=lambda item: not _is_fast(item.path))


@pytest.fixture(scope="session", autouse=True)
def hermetic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Moves caches and homes into folders of the test session, so nothing is left behind and no user's file is found.

    Yields:
      The home folder. Like the caches, it is shared by all of xdist's workers.
    """
    # Processes that tests start should receive signals even if this session was started in the background.
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    patch = pytest.MonkeyPatch()
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base
    home = shared / "home"
    home.mkdir(exist_ok=True)
    # A cache that the caller names, as tox does, is shared by all sessions, which then compile less.
    patch.setenv("T5X_HARNESS_CACHE_DIR", os.environ.get("T5X_HARNESS_CACHE_DIR", str(shared / "t5x-harness-cache")))
    patch.setenv("HOME", str(home))
    patch.setenv("T5X_HARNESS_TPU_AOT", "off")  # a test that compiles turns it on
    patch.setenv("T5X_HARNESS_KEEP", "0")  # no process outlives a test
    patch.setenv("KERAS_HOME", os.devnull)  # so that importing Keras writes no files
    if t5x_in_use.name == "embedded":  # an installed T5X may be found through it
        patch.delenv("PYTHONPATH", raising=False)
    patch.setenv("PYTEST_ADDOPTS", FOREIGN)
    # Tests must not write to this suite's summary. In CI, pytest cuts no line, and in xdist's workers COLUMNS is set.
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "CI", "BUILD_NUMBER", "COLUMNS"):
        patch.delenv(name, raising=False)
    yield home
    patch.undo()


@pytest.fixture
def imported_meanwhile() -> Iterator[dict[str, ModuleType]]:
    """Puts modules back that pytester has removed: libraries with native parts cannot be imported a second time."""
    modules: dict[str, ModuleType] = {}
    yield modules
    for name, module in modules.items():
        sys.modules.setdefault(name, module)


@pytest.fixture
def pytester(
    imported_meanwhile: dict[str, ModuleType], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.Pytester]:
    """Yields pytest's pytester, which drops the session's options, with the options that all test sessions need."""
    monkeypatch.setenv("PYTEST_ADDOPTS", FOREIGN)
    before = set(sys.modules)
    yield pytester
    for name in set(sys.modules) - before:
        places = places_of(sys.modules[name])  # what a test puts in place of a module has none
        if places and not any(place.is_relative_to(pytester.path) for place in places):
            imported_meanwhile[name] = sys.modules[name]


@pytest.fixture(scope="session")
def socket_path(hermetic: Path) -> Path:
    """Returns the path at which other sessions find :func:`zygote`."""
    return hermetic / "zygote"


@pytest.fixture(scope="session")
def zygote(socket_path: Path) -> Iterator[Zygote]:
    """Starts the process that runs are forked from, which has imported T5X: one for all of xdist's workers.

    The first worker that requests it starts it, and keeps it until the others no longer need it.
    """
    with (
        open(f"{socket_path}.made", "w") as made,
        open(f"{socket_path}.used", "w") as used,
        contextlib.ExitStack() as stack,
    ):
        fcntl.flock(made, fcntl.LOCK_EX)
        if socket_path.exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(WORKER_SOCKET_VARIABLE, str(socket_path))
                worker = stack.enter_context(worker_for(t5x_in_use.found()))
        else:
            worker = stack.enter_context(worker_for(t5x_in_use.found(), socket_path=socket_path))
            stack.callback(fcntl.flock, used, fcntl.LOCK_EX)
        worker.await_ready()
        assert worker.refusal == ""
        fcntl.flock(used, fcntl.LOCK_SH)
        fcntl.flock(made, fcntl.LOCK_UN)
        yield worker


@pytest.fixture
def imported(
    zygote: Zygote, socket_path: Path, hermetic: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lets sessions that the test starts find T5X imported, as in a shell of ``t5x-harness warm``."""
    monkeypatch.setenv(WORKER_SOCKET_VARIABLE, str(socket_path))
    monkeypatch.setenv("HOME", str(hermetic))  # imports depend on it, and pytester has a home for each test


@pytest.fixture(scope="session")
def vertex_options() -> VertexOptions:
    """Returns the images for all tests, which share a server: the first test that needs it sets its options."""
    from t5x_harness.google.vertex.settings import VertexOptions

    programs = Path(__file__).parent / "vertex"
    stand_ins = {
        "*tells-devices*": "t5x_stand_in.py",
        "*stand-in*": "t5x_stand_in.py",
        "*auxiliary*": "../auxiliary/stand_in_job.py",
    }
    return VertexOptions(images={glob: f"{sys.executable} {programs / name}" for glob, name in stand_ins.items()})


@pytest.fixture
def harness(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Returns a function that runs ``t5x-harness`` in this process, expects an exit status, and returns the output."""
    from t5x_harness.commands.main import main

    def run(status: int, *arguments: str) -> Any:
        assert main(arguments) == status, capsys.readouterr()
        return capsys.readouterr()

    return run


@pytest.fixture(scope="session")
def repository() -> Path:
    """Returns the root of the source tree."""
    return Path(__file__).parent.parent
