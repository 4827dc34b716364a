"""Plans configs on the examples' tiny task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import t5x_in_use

from t5x_harness.findings import examples
from t5x_harness.spec import RunResult, Stage, StageResult

t5x_in_use.use()


@pytest.fixture
def plan(run_until: Callable[..., RunResult]) -> Callable[..., StageResult]:
    """Plans a train config that ends with these lines, or the config of another mode."""

    def run(*lines: str, gin: str | None = None, **options: Any) -> StageResult:
        return run_until(Stage.PLAN, gin or examples.trained(*lines), **options).stages[-1]

    return run
