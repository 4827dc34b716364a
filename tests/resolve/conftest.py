"""Resolves configs on tasks written in the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import t5x_in_use
from tasks_in_text import of

from t5x_harness.findings import examples
from t5x_harness.spec import Finding, RunResult, Stage, StageResult

t5x_in_use.use()


@pytest.fixture
def resolve(run_until: Callable[..., RunResult]) -> Callable[..., StageResult]:
    """Gives the result of resolving a config."""

    def run(gin: str, files: Mapping[str, str], **options: Any) -> StageResult:
        return run_until(Stage.RESOLVE, gin, files, **options).stages[-1]

    return run


@pytest.fixture
def find(resolve: Callable[..., StageResult]) -> Callable[..., Finding]:
    """Gives the one finding of a code, of a train config that ends with these lines or of another config."""

    def found(code: str, files: Mapping[str, str], *lines: str, gin: str | None = None, **options: Any) -> Finding:
        return of(resolve(gin or examples.trained(*lines), files, **options), code)

    return found
