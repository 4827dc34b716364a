"""`t5x-harness fit` as typed: each wrong usage has one message and starts nothing; Ctrl-C keeps the known results."""

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
from t5x_harness.commands.main import main
from t5x_harness.findings.rule import training


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x.gin", "--slices", "v3-9"], "--slices: 'v3-9' is not a TPU slice: nearest names: v3-8, v3-32, v3-64"),
        (["x.gin", "--generation", "v7"], "--generation v7: choose one of v2, v3, v4, v5e, v5p, v6e"),
        (["x.gin", "y.gin"], "fit takes one config, and these are 2: x, y"),
        (["missing.gin"], "there is no gin file missing.gin; searched: ."),
        ([], "nothing to run: name a gin file"),
        (["x.gin", "--programs", "trian"], "--programs trian: choose of train, train_eval, predict, score"),
        (["x.gin", "--remat", "most"], "--remat most: choose of none, minimal, full"),
        (["x.gin", "--microbatches", "0"], "must be a whole number from 1 up, not '0'"),
        (["x.gin", "--batch", "64,,128"], "'64,,128': give values with commas between them"),
        (["x.gin", "--slices", "v3-8", "--generation", "v3"], "not allowed with argument"),
        (["x.gin", "--aot=lower"], "invalid choice: 'lower'"),
        (["x.gin", "--hours", "0"], "must be a positive number, not '0'"),
    ],
)
def test_wrong_usage(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("x.gin", "y.gin"):
        Path(name).write_text("from __gin__ import dynamic_registration\n")
    assert main(["fit", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.stack
@pytest.mark.skipif(not libtpu.is_installed(), reason="libtpu is not installed")
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
