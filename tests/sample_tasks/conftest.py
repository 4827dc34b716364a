"""Runs of the sample configs, forked from one process that has imported the embedded T5X."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from t5x_harness.runs.pipeline import Pipeline
from t5x_harness.runtime.choice import find_runtime
from t5x_harness.spec import RunSpec
from t5x_harness.workers import Zygote

MakePipeline = Callable[[RunSpec], Pipeline]


@pytest.fixture
def pipeline(zygote: Zygote, tmp_path: Path) -> Iterator[MakePipeline]:
    """Makes the pipeline of a run; its process is ended after the test."""
    opened: list[Pipeline] = []

    def make(spec: RunSpec) -> Pipeline:
        workspace = tmp_path / f"work{len(opened)}"
        workspace.mkdir()
        opened.append(
            Pipeline(
                spec,
                zygote=zygote,
                workspace=workspace,
                timeout=300,
                t5x_parent=find_runtime(spec.runtime).location,  # type: ignore[arg-type]
            )
        )
        return opened[-1]

    yield make
    for each in opened:
        each.close()
