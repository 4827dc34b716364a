"""The process that runs a converted model in transformers: its imports, and the message if it ends early."""

import os
from pathlib import Path

import numpy as np
import pytest
from tiny_models import write

import t5x_harness
from t5x_harness.conversion import checking, request
from t5x_harness.conversion.conversion import convert
from t5x_harness.conversion.in_transformers import run_in_transformers
from t5x_harness.conversion.request import ConversionError, ConversionRequest, Form
from t5x_harness.spec import Checkpoint, RunResult, RunSpec

# Acts like a torch with Triton, which ends a process that has imported TensorFlow.
DIES_AFTER_TENSORFLOW = """
import os, signal, sys
if "tensorflow" in sys.modules:
    os.kill(os.getpid(), signal.SIGSEGV)
"""
DIES = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, *, torch: str, transformers: str = "") -> None:
    """Makes new processes import these modules instead of the libraries."""
    (folder / "torch.py").write_text(torch)
    (folder / "transformers.py").write_text(transformers)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]))


def run(folder: Path) -> str:
    tokens = np.zeros((1, 2), np.int64)
    with pytest.raises(ConversionError) as error:
        run_in_transformers(folder, "T5ForConditionalGeneration", tokens, tokens, 1)
    return str(error.value)


def test_a_process_that_is_killed_is_an_error_with_its_signal_and_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, torch=DIES)
    message = run(tmp_path)
    assert message.startswith(
        "--check: the process that runs the model in transformers was killed by SIGSEGV (segfault). Nothing was "
        "written; convert without --check if the model is not to be compared.\n  the end of its log:\n"
        "  Fatal Python error: Segmentation fault\n"
    )
    assert f'File "{tmp_path}/torch.py", line 1 in <module>' in message


def test_what_a_library_raises_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, torch="raise ImportError('libcudart.so.12: cannot open')")
    message = run(tmp_path)
    assert "the process that runs the model in transformers exited with status 1." in message
    assert message.endswith("\n  ImportError: libcudart.so.12: cannot open")


def test_it_imports_no_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(
        tmp_path, monkeypatch, torch=DIES_AFTER_TENSORFLOW, transformers="import sys; sys.exit(str({*sys.modules}))"
    )
    message = run(tmp_path)
    assert "exited with status 1" in message
    assert not [name for name in ("'tensorflow'", "'jax'", "'seqio'") if name in message]


def test_no_file_of_the_working_folder_is_taken_for_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd/torch.py").write_text("raise SystemExit('of the working folder')")
    install(tmp_path, monkeypatch, torch="raise SystemExit('of the path')")
    monkeypatch.chdir(tmp_path / "cwd")
    assert run(tmp_path).endswith("\n  of the path")


def test_nothing_is_written_where_the_comparison_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "modules").mkdir()
    install(tmp_path / "modules", monkeypatch, torch=DIES)
    monkeypatch.setattr(checking, "find_spec", lambda name: object())
    monkeypatch.setattr(checking, "_in_t5x", lambda *_: (np.zeros(1), np.zeros((1, 1))))
    checkpoint = write(tmp_path / "run", "t5_1_1")
    with pytest.raises(ConversionError, match="was killed by SIGSEGV"):
        convert(ConversionRequest(str(checkpoint), Form.TRANSFORMERS, str(tmp_path / "hf"), check=True))
    assert sorted(os.listdir(tmp_path)) == ["modules", "run"]


def test_a_conversion_that_is_killed_says_so_to_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho begun >&2\nkill -9 $$\n")
    python.chmod(0o755)
    monkeypatch.setattr(request.sys, "executable", str(python))
    with pytest.raises(ConversionError) as error:
        t5x_harness.convert(tmp_path / "checkpoint_1")
    assert str(error.value) == "the process that converts was killed by SIGKILL (out of memory?)\n  begun"


@pytest.mark.parametrize(
    ("steps", "step", "message"),
    [
        ((), None, "the run wrote no checkpoint: it has none"),
        ((), 7, "the run wrote no checkpoint at step 7: it has none"),
        ((2, 4), 7, "the run wrote no checkpoint at step 7: it has 2, 4"),
    ],
)
def test_a_run_without_that_checkpoint_is_not_converted(steps: tuple[int, ...], step: int | None, message: str) -> None:
    checkpoints = tuple(Checkpoint(each, f"run/checkpoint_{each}", 1) for each in steps)
    run = RunResult(RunSpec(("run.gin",)), (), checkpoints=checkpoints)
    with pytest.raises(ValueError, match=f"^{message}$"):
        t5x_harness.convert(run, step=step)


def test_a_path_takes_no_step(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^step=7 is for the checkpoints of a run"):
        t5x_harness.convert(tmp_path / "checkpoint_1", step=7)
