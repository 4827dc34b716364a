"""Resolves configs on tasks written in the test."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import t5x_in_use
from tasks_in_text import of

from t5x_harness.findings.rule import trained
from t5x_harness.spec import Finding, RunResult, Stage, StageResult

t5x_in_use.use()


@pytest.fixture
def resolve(run_until: Callable[..., RunResult]) -> Callable[..., StageResult]:
    """Returns a function that resolves a config and returns the result."""

    def run(gin: str, files: Mapping[str, str], **options: Any) -> StageResult:
        return run_until(Stage.RESOLVE, gin, files, **options).stages[-1]

    return run


@pytest.fixture
def find(resolve: Callable[..., StageResult]) -> Callable[..., Finding]:
    """Returns a function that resolves a config, or a train config with extra lines, to a code's only finding."""

    def found(code: str, files: Mapping[str, str], *lines: str, gin: str | None = None, **options: Any) -> Finding:
        return of(resolve(gin or trained(*lines), files, **options), code)

    return found
