"""What a command line of T5X says of the steps that it compiles, and what judges them as a job of Vertex AI."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from t5x_harness.google.vertex.jobs.judging import CannotJudge
from t5x_harness.slices.slice import get_slice
from t5x_harness.spec import AotMode, Mode
from t5x_harness.variables import CACHE_VARIABLE, SHRINK_VARIABLE
from t5x_harness.vertex import job_programs
from t5x_harness.vertex.program_arguments import NotARun, ProgramArguments


def test_all_that_decides_which_steps_are_compiled_is_read() -> None:
    found = ProgramArguments.parse(
        "t5x.main",
        [
            *("--run_mode=infer", "--gin_file=model.gin", "--gin_file", "run.gin", "--logtostderr", "--verbosity=1"),
            *("-gin.MODEL_DIR='gs://b/-x'", "--gin_bindings=BATCH_SIZE = 8", "--gin.infer.mode='score'"),
            *("--gin_search_paths=/gcs/b/gin,other", "--tfds_data_dir=gs://b/tfds", "--nodry_run"),
        ],
    )
    assert found == ProgramArguments(
        Mode.INFER,
        ("model.gin", "run.gin"),
        ("MODEL_DIR = 'gs://b/-x'", "BATCH_SIZE = 8", "infer.mode = 'score'"),
        ("/gcs/b/gin", "other"),
        "gs://b/tfds",
    )
    assert ProgramArguments.parse("t5x.eval", ["--gin_file=a.gin", "--dry_run=false"]).mode is Mode.EVAL


@pytest.mark.parametrize(
    ("module", "arguments", "why"),
    [
        ("t5x.main", ["--gin_file=a.gin"], "t5x.main --run_mode=None neither trains nor evaluates nor infers"),
        ("t5x.main", ["--run_mode=export"], "t5x.main --run_mode=export neither trains nor evaluates nor infers"),
        ("t5x.precompile", ["--gin_file=a.gin"], "t5x.precompile neither trains nor evaluates nor infers"),
        ("t5x.train", [], "it has no --gin_file"),
        ("t5x.train", ["--gin_file=a.gin", "--dry_run"], "--dry_run reads the config and runs nothing"),
        ("t5x.train", ["--gin_file"], "its arguments cannot be read: argument --gin_file: expected one argument"),
    ],
)
def test_a_program_that_compiles_no_step_is_none_to_judge(module: str, arguments: list[str], why: str) -> None:
    with pytest.raises(NotARun) as raised:
        ProgramArguments.parse(module, arguments)
    assert str(raised.value) == why


def test_a_script_of_t5x_is_judged_on_its_slice_with_what_was_compiled_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    words = job_programs.with_modules(["python", "./t5x/t5x/train.py", "--gin_file=a.gin"])
    judging, variables = job_programs.judge(words, get_slice("v3-8"), AotMode.MEMORY)
    assert judging == [
        *(sys.executable, "-m", "t5x_harness.runs.job_judge", "v3-8", "memory"),
        *("t5x.train", "--gin_file=a.gin"),
    ]
    assert variables == {CACHE_VARIABLE: str(tmp_path), SHRINK_VARIABLE: ""}  # it is judged at its own size


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["python", "trainer.py"], "its command is not one of T5X's scripts, such as python -m t5x.main"),
        (
            ["bash", "-c", "cd /x && python -m t5x.train --gin_file=$FILE"],
            "its command is a script for a shell: give T5X's script as words of command and args",
        ),
    ],
)
def test_any_other_command_is_not_judged(words: list[str], why: str) -> None:
    with pytest.raises(CannotJudge) as raised:
        job_programs.judge(words, get_slice("v3-8"), AotMode.MEMORY)
    assert str(raised.value) == why
