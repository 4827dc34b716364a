"""Runs the examples of rules through resolve and plan, most of them in a shared process."""

from collections.abc import Callable
from pathlib import Path

import pytest
import t5x_in_use
from checkpoint_writer import write_checkpoint
from local_run import LocalRun
from shared_process import SharedProcesses

from t5x_harness.findings.rule import FOLDER, Example
from t5x_harness.runs.local import LocalExecutor
from t5x_harness.runs.run import Run
from t5x_harness.spec import AotMode, Outcome, RunSettings, RunSpec, Stage, StageResult
from t5x_harness.variables import ROOT_VARIABLE, SOURCE_VARIABLE
from t5x_harness.workers.zygote import Zygote

Examined = Callable[[Example, Stage], StageResult]


@pytest.fixture
def examine(zygote: Zygote, shared_processes: SharedProcesses, tmp_path: Path) -> Examined:
    """Returns a function that runs an example up to a stage, and returns the result of the last stage that ran."""

    def run(example: Example, until: Stage) -> StageResult:
        for name, text in {**example.files, "run.gin": example.gin}.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace(FOLDER, str(tmp_path)), encoding="utf-8")
        for folder, gin in example.checkpoints.items():
            (tmp_path / "writer.gin").write_text(gin, encoding="utf-8")
            write_checkpoint(zygote, tmp_path, folder, "writer.gin")
        if example.golden:
            return _against_golden(zygote, tmp_path, example)
        buckets = tmp_path / "buckets"
        given = {ROOT_VARIABLE: str(tmp_path), SOURCE_VARIABLE: str(buckets)} if buckets.is_dir() else {}
        spec = RunSpec(
            ("run.gin",),
            tuple(binding.replace(FOLDER, str(tmp_path)) for binding in example.bindings),
            mode=example.mode,
            slice=example.slice,
            runtime=t5x_in_use.name,
            python_path=(str(tmp_path),),
            cwd=str(tmp_path),
            settings=RunSettings(aot=AotMode.MEMORY if until is Stage.AOT else None),
        )
        processes = zygote if until is Stage.AOT else shared_processes
        with LocalRun(spec, zygote=processes, workspace=tmp_path / "run", timeout=120, env=given) as backend:
            for stage in backend.stages[: backend.stages.index(until) + 1]:
                result = backend.stage(stage)
                if result.outcome is not Outcome.PASSED:
                    break
        return result

    return run


def _against_golden(zygote: Zygote, folder: Path, example: Example) -> StageResult:
    """Plans the config of the golden plan, and then the example's own config."""
    result = None
    for number, gin in enumerate((example.golden, example.gin)):
        (folder / "run.gin").write_text(gin, encoding="utf-8")
        spec = RunSpec(
            ("run.gin",),
            runtime=t5x_in_use.name,
            python_path=(str(folder),),
            cwd=str(folder),
            settings=RunSettings(plan_golden="golden/run.plan"),
        )
        with Run(spec, LocalExecutor(zygote, timeout=120), workspace=folder / f"run{number}") as run:
            result = run.stage(Stage.PLAN)
    assert result is not None
    return result
