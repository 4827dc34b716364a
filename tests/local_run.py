"""Runs whose lint counts as passed for every config, for tests of the stages after lint."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t5x_harness.gin.reading import program_of
from t5x_harness.runs.local import LocalExecutor
from t5x_harness.runs.run import Run
from t5x_harness.spec import Mode, Outcome, RunSpec, Stage, StageResult


class LocalRun(Run):
    """A run in a process of this machine. It trains if the config does not show its mode."""

    executor: LocalExecutor

    def __init__(
        self,
        spec: RunSpec,
        *,
        zygote: Any,
        workspace: Path,
        timeout: float | None = None,
        env: Mapping[str, str | None] | None = None,
        on_progress: Any = None,
    ) -> None:
        mode = spec.mode or program_of(spec).mode or Mode.TRAIN
        executor = LocalExecutor(zygote, timeout=timeout, env=env)
        super().__init__(dataclasses.replace(spec, mode=mode), executor, workspace=workspace, on_progress=on_progress)
        self.done[Stage.LINT] = StageResult(Stage.LINT, Outcome.PASSED, exercised=1)

    def passed(self, *stages: Stage) -> StageResult:
        """Runs stages, each of which must pass, and returns the result of the last one."""
        for stage in stages:
            result = self.stage(stage)
            assert result.outcome is Outcome.PASSED, (stage, result.findings, result.log_tail)
        return result
