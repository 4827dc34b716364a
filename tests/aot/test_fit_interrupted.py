"""Ctrl-C while `fit` has the TPU's compiler at work: what is known stays, and no process does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from interrupts import processes_with

from t5x_harness.aot import libtpu
from t5x_harness.findings.examples import training

pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(not libtpu.is_installed(), reason="libtpu is not installed"),
]


def test_what_was_compiled_is_kept_and_nothing_runs_on(tmp_path: Path) -> None:
    example = training("TRAIN_STEPS = 1000")
    for name, text in {**example.files, "run.gin": example.gin}.items():
        (tmp_path / name).write_text(text)
    mark = f"T5X_HARNESS_TEST_{uuid.uuid4().hex}"
    fit = subprocess.Popen(
        [
            *(sys.executable, "-m", "t5x_harness", "fit", "run.gin", "--slices=v2-8,v3-8", "--every"),
            *("--programs=train", "--microbatches=1", f"--python-path={tmp_path}"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, mark: "1", "T5X_HARNESS_CACHE_DIR": str(tmp_path / "cache")},
        start_new_session=True,
    )
    try:
        assert fit.stderr is not None
        said = []
        for line in fit.stderr:
            said.append(line)
            if "step 2 of 2" in line and "compiling train" in line:
                break
        os.killpg(fit.pid, signal.SIGINT)
        printed, rest = fit.communicate(timeout=60)
    finally:
        if fit.poll() is None:
            os.killpg(fit.pid, signal.SIGKILL)
    assert fit.returncode == 130, (printed, said, rest)
    assert "Traceback" not in rest
    assert "interrupted: 1 combination is known" in printed
    assert "the smallest slice that holds it: v2-8 (train needs " in printed
    deadline = time.monotonic() + 10
    while processes_with(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_with(mark) == []
