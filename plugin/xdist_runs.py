"""Under pytest-xdist, all stages of a run go to the same worker, and the results come back for the table at the end."""

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from t5x_harness.upstream.pytest import scheduling_by

from .promotion import PROMOTION
from .reports import COLUMNS, columns_of
from .session import SESSION

_RESULTS = "t5x_harness"
_NODES = pytest.StashKey[list[Any]]()
_SECONDS = 10.0
"""How long interrupted workers may take to hand over their results; a second Ctrl-C ends the wait."""


def _run_of(nodeid: str) -> str | None:
    """Returns the run that a stage belongs to; all stages of a run share a process."""
    run, _, _ = nodeid.rpartition("::")
    return run if run.partition("::")[0].endswith((".gin", "pyproject.toml")) else None


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Replaces only the default distribution; ``loadfile`` and others that the user requested remain."""
    return scheduling_by(_run_of)(config, log) if config.getvalue("dist") == "load" else None


def pytest_configure_node(node: Any) -> None:
    """Passes the width of the controller's terminal to a worker that is about to start."""
    node.workerinput[COLUMNS] = columns_of(node.config)
    node.config.stash.setdefault(_NODES, []).append(node)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hands a worker's results to the controller."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        runs, jobs = session.config.stash[SESSION].runs.results, session.config.stash[PROMOTION]
        output[_RESULTS] = json.dumps([runs.to_json(), jobs.to_json()])


def pytest_testnodedown(node: Any) -> None:
    """Adds the results of a worker that has ended to the controller's; a worker that crashed has none."""
    node.config.stash[_NODES].remove(node)
    output = getattr(node, "workeroutput", {})
    if _RESULTS in output:
        runs, jobs = json.loads(output[_RESULTS])
        node.config.stash[SESSION].runs.results.add_json(runs)
        node.config.stash[PROMOTION].add_json(jobs)


class ControllerInterruption:
    """Collects, in the controller, the results that workers hand over after Ctrl-C, which also reaches them."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        """Ends the session on Ctrl-C; otherwise only messages of workers arrive here."""
        is_controller = session.config.getoption("dist") != "no"
        with session.config.stash[SESSION].watching() if is_controller else contextlib.nullcontext():
            return (yield)

    @pytest.hookimpl(tryfirst=True)  # before xdist ends the workers
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Waits a short time for the results of interrupted workers."""
        nodes = session.config.stash.get(_NODES, [])
        deadline = time.monotonic() + _SECONDS
        while exitstatus == pytest.ExitCode.INTERRUPTED and nodes and time.monotonic() < deadline:
            for node in [node for node in nodes if hasattr(node, "workeroutput") or node.channel.isclosed()]:
                pytest_testnodedown(node)
            time.sleep(0.01)
