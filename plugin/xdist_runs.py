"""Under pytest-xdist: all stages of a run go to the same worker, and the results come back for the table at the end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling

from .promotion import PROMOTION
from .session import SESSION

_RESULTS = "t5x_harness"
_JOBS = "t5x_harness_jobs"


class RunScheduling(LoadGroupScheduling):
    """``--dist load``, except that the stages of one run, which share a process, stay together and in order."""

    def _split_scope(self, nodeid: str) -> str:
        run, _, _ = nodeid.rpartition("::")
        file = run.partition("::")[0]
        return run if file.endswith((".gin", "pyproject.toml")) else str(super()._split_scope(nodeid))


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> RunScheduling | None:
    """Replaces the default distribution only; ``loadfile`` and others that the user asked for stay."""
    return RunScheduling(config, log) if config.getvalue("dist") == "load" else None


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker: hands its results to the controller."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_RESULTS] = json.dumps(session.config.stash[SESSION].to_json())
        output[_JOBS] = json.dumps(session.config.stash[PROMOTION].to_json())


def pytest_testnodedown(node: Any, error: Any) -> None:
    """In the controller: takes the results of a worker that has ended. One that crashed handed over none."""
    output = getattr(node, "workeroutput", {})
    if _RESULTS in output:
        node.config.stash[SESSION].add_json(json.loads(output[_RESULTS]))
        node.config.stash[PROMOTION].add_json(json.loads(output[_JOBS]))
