"""An executor that runs nothing, for tests of how a run handles the answers."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import t5x_harness
from t5x_harness.runs.run import Run
from t5x_harness.spec import Finding, Outcome, RunSpec, Stage, StageResult

EMBEDDED = Path(t5x_harness.__file__).parent / "embedded"


class FakeExecutor:
    """Answers as a test specifies, and notes the calls that it receives.

    Attributes:
      outcomes: the outcomes of the stages that do not pass.
      findings: the findings of stages.
      not_checked: the doubts of stages.
      hook: a function that is called with each stage before the answer.
    """

    def __init__(self, hook: Callable[[Stage], None] = lambda stage: None) -> None:
        self.outcomes: dict[Stage, Outcome] = {}
        self.findings: dict[Stage, tuple[Finding, ...]] = {}
        self.not_checked: dict[Stage, tuple[str, ...]] = {}
        self.hook = hook
        self.asked: list[Stage] = []
        self.runs: list[Run] = []
        self.closed = False
        self.settings: dict[str, Any] = {}

    def stage(self, run: Run, stage: Stage) -> StageResult:
        self.asked.append(stage)
        self.runs.append(run)
        self.hook(stage)
        outcome = self.outcomes.get(stage, Outcome.PASSED)
        left_open = self.not_checked.get(stage, ())
        return StageResult(stage, outcome, self.findings.get(stage, ()), exercised=1, not_checked=left_open)

    def submit(self, _: Run) -> None:
        raise AssertionError("no job is asked for")

    def written(self, _: Run) -> Mapping[str, Any]:
        return {"steps": 4, "runtime": "embedded"}

    def close(self) -> None:
        self.closed = True


def linted(spec: RunSpec, executor: FakeExecutor, **options: Any) -> Run:
    """Makes a run whose lint has passed."""
    run = Run(spec, executor, t5x_parent=EMBEDDED, **options)
    run.done[Stage.LINT] = StageResult(Stage.LINT, Outcome.PASSED, exercised=1)
    return run
