"""Runs, and T5X jobs that ask for it, skip preparations that pay only for many steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_harness.upstream.orbax import SMALLEST_SLICE
from t5x_harness.variables import BRIEF_VARIABLE
from t5x_harness.workers import Zygote

HERE = str(Path(__file__).parent)


@pytest.mark.parametrize("brief", [True, False])
def test_the_environment_says_so(zygote: Zygote, tmp_path: Path, brief: bool) -> None:
    env = {BRIEF_VARIABLE: "1" if brief else None}
    with zygote.start(
        "short_run_objects:Options", {}, log=tmp_path / "log", env=env, cwd=tmp_path, python_path=[HERE]
    ) as run:
        found = run.call("read", timeout=60)
    assert found["optimises graphs"] is not brief
    assert found["tunes"] is not brief
    assert found["rewrites"] is not brief
    assert (found["smallest slice"] == SMALLEST_SLICE) is brief
