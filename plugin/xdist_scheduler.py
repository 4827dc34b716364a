"""Under pytest-xdist, all stages of a run go to the same worker: they share one process there."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling


class RunScheduling(LoadGroupScheduling):
    """``--dist load``, except that the stages of one run stay together and in order."""

    def _split_scope(self, nodeid: str) -> str:
        run, _, _ = nodeid.rpartition("::")
        file = run.partition("::")[0]
        return run if file.endswith((".gin", "pyproject.toml")) else str(super()._split_scope(nodeid))


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> RunScheduling | None:
    """Replaces the default distribution only; ``loadfile`` and others that the user asked for stay."""
    return RunScheduling(config, log) if config.getvalue("dist") == "load" else None
