"""A repository with configs, which are linted as by the command."""

from collections.abc import Callable
from pathlib import Path

import pytest

from t5x_harness.report.report import Report
from t5x_harness.runs.run import Run
from t5x_harness.spec import RunSpec, Stage

HEAD = "include 't5x/examples/t5/t5_1_1/tiny.gin'\ninclude 't5x/configs/runs/pretrain.gin'\n"
BOUND = "MIXTURE_OR_TASK_NAME = 'task'\nTASK_FEATURE_LENGTHS = {'inputs': 8}\nDROPOUT_RATE = 0.0\n"

Lint = Callable[..., Report]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder ``my configs`` of a repository: ``run.gin``, which includes ``deep/base.gin`` with a float in it."""
    (tmp_path / ".git").mkdir()
    folder = tmp_path / "my configs"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "base.gin").write_text(f"{HEAD}TRAIN_STEPS = 1.5\n")
    (folder / "run.gin").write_text(f"\ninclude 'deep/base.gin'\nTYPO = 1\n{BOUND}")
    return folder


@pytest.fixture
def lint(folder: Path) -> Lint:
    """Lints files of the folder, each as a separate run."""

    def call(*files: str, bindings: tuple[str, ...] = (), cwd: Path = folder) -> Report:
        results = []
        for file in files:
            spec = RunSpec((file,), bindings, search_paths=(str(folder),), runtime="embedded", cwd=str(cwd))
            run = Run(spec, None)
            run.stage(Stage.LINT)
            results.append(run.result())
        return Report(tuple(results))

    return call
