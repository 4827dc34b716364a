"""Resolves configs on tasks written in the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import t5x_in_use

from t5x_harness.spec import RunResult, Stage, StageResult

t5x_in_use.use()


@pytest.fixture
def resolve(run_until: Callable[..., RunResult]) -> Callable[..., StageResult]:
    """Gives the result of resolving a config."""

    def run(gin: str, files: Mapping[str, str], **options: Any) -> StageResult:
        return run_until(Stage.RESOLVE, gin, files, **options).stages[-1]

    return run
