"""A folder of gin configs for pytest to collect, with the embedded T5X."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from t5x_harness.sample_tasks import CONFIGS
from t5x_harness.workers.zygote import WARM_WORKER_UNUSED

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def folder(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, also the working directory, with ``infer.gin``, ``train.gin`` and the fragments that they include."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    shutil.copytree(CONFIGS / "models", pytester.path / "models")
    shutil.copy(CONFIGS / "infer_answer.gin", pytester.path / "infer.gin")
    shutil.copy(CONFIGS / "finetune_answer.gin", pytester.path / "train.gin")
    return pytester.path


@pytest.fixture
def run(pytester: pytest.Pytester, folder: Path, imported: None) -> Run:
    """Runs pytest there; whatever the outcome, none of the harness's tracebacks may be shown."""

    def call(*arguments: str) -> pytest.RunResult:
        result = pytester.runpytest_subprocess("--t5x-runtime=embedded", *arguments)
        for text in (result.stdout, result.stderr):
            text.no_fnmatch_line("*Traceback*")
            text.no_fnmatch_line("*INTERNALERROR*")
            text.no_fnmatch_line(f"{WARM_WORKER_UNUSED}*")
        return result

    return call
