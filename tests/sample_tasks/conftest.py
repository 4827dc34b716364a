"""Runs of the sample configs, forked from one process that has imported the embedded T5X."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from t5x_harness.runs.local import LocalExecutor
from t5x_harness.runs.run import Run
from t5x_harness.runtime.choice import find_runtime
from t5x_harness.spec import RunSpec
from t5x_harness.workers.zygote import Zygote

MakeRun = Callable[[RunSpec], Run]


@pytest.fixture
def make_run(zygote: Zygote, tmp_path: Path) -> Iterator[MakeRun]:
    """Makes runs, whose processes end after the test."""
    opened: list[Run] = []

    def make(spec: RunSpec) -> Run:
        workspace = tmp_path / f"work{len(opened)}"
        workspace.mkdir()
        opened.append(
            Run(
                spec,
                LocalExecutor(zygote, timeout=300),
                workspace=workspace,
                t5x_parent=find_runtime(spec.runtime).location,  # type: ignore[arg-type]
            )
        )
        return opened[-1]

    yield make
    for each in opened:
        each.close()
