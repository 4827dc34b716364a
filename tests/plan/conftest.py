"""Plans configs on the examples' tiny task."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import t5x_in_use

from t5x_harness.findings.rule import FILES, trained
from t5x_harness.spec import Finding, RunResult, Stage, StageResult

t5x_in_use.use()


@pytest.fixture
def plan(run_until: Callable[..., RunResult]) -> Callable[..., StageResult]:
    """Returns a function that plans a train config ending with these lines, or a config of another mode.

    Additional modules may replace those of the examples.
    """

    def run(
        *lines: str, gin: str | None = None, modules: Mapping[str, str] | None = None, **options: Any
    ) -> StageResult:
        files = {**FILES, **{f"{name}.py": text for name, text in (modules or {}).items()}}
        return run_until(Stage.PLAN, gin or trained(*lines), files, **options).stages[-1]

    return run


@pytest.fixture
def find(plan: Callable[..., StageResult]) -> Callable[..., Finding]:
    """Returns a function that plans a config and returns the only finding of a code."""

    def found(code: str, *lines: str, **options: Any) -> Finding:
        (finding,) = (f for f in plan(*lines, **options).findings if f.code == code)
        return finding

    return found
