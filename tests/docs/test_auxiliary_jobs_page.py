"""The examples of docs/auxiliary-jobs.md run: a train job with continuous evaluation, in a shell and in Python."""

import re
import shlex
import sys
from pathlib import Path

import pytest
import t5x_in_use
from page_blocks import bash, blocks, options_of, python

from t5x_harness.rulebook.codes import every_code

GIN = ("model", "train", "eval", "finetune")


def _rows(page: str, head: str) -> list[str]:
    return re.findall(r"^\| (.*?) \|", page.partition(head)[2].partition("\n\n")[0], re.MULTILINE)


def test_the_options_are_those_that_there_are(page: str) -> None:
    listed = {name for row in _rows(page, "| option |") for name in re.findall(r"--[a-z_]+", row)}
    listed |= set(re.findall(r"`(--(?:on|timeout|label|env))", page))
    own = options_of("auxiliary")
    assert listed <= own
    shared = {"--gin_file", "--model_dir", "--help", "--auxiliary_job_build_target_path"}
    named = {name for name in own if name.startswith("--") and "_" in name and "gin_" not in name}
    assert named - shared - listed <= {"--tfds_data_dir"}


def test_every_code_of_auxiliary_jobs_is_listed(page: str) -> None:
    assert _rows(page, "| code |") == sorted(code for code in every_code() if code.startswith("AUX"))


@pytest.fixture(scope="module")
def run_by_the_page(page: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Runs the page's shell commands; returns its folder and their output."""
    pytest.importorskip("seqio")
    folder = tmp_path_factory.mktemp("page")
    for name, text in zip(GIN, blocks(page, "gin"), strict=True):
        (folder / f"{name}.gin").write_text(text)
    (block,) = blocks(page, "shell")
    block = block.replace("t5x-harness auxiliary", f"t5x-harness auxiliary --t5x-runtime={t5x_in_use.name}")
    return folder, [bash(line, folder) for line in block.splitlines()]


@pytest.mark.journey
def test_the_commands_evaluate_every_checkpoint_in_one_folder(run_by_the_page: tuple[Path, list[str]]) -> None:
    from t5x_harness.vertex.metrics import scalars_of

    folder, (first, status) = run_by_the_page
    assert first == status
    assert "eval: 3 succeeded; newest checkpoint: checkpoint_4 of 4 steps\n" in first
    events = (folder / "model" / "inference_eval" / "sample_classify").glob("events.out.tfevents.*")
    steps = {step for path in events for _, step, _ in scalars_of(path.read_bytes())}
    assert steps == {0, 2, 4}
    logs = [path.read_text() for path in (folder / "model" / "auxiliary" / "eval" / "jobs").glob("eval-*/log")]
    assert len(logs) == 3
    assert all(f"{t5x_in_use.found().location}/configs/runs/eval.gin" in log for log in logs)
    assert not list((folder / "model" / "auxiliary" / "eval" / "held").iterdir())
    assert "checkpoint_0" not in {path.name for path in (folder / "model").iterdir()}  # keep = 2


@pytest.mark.journey
def test_the_same_in_python_repeats_nothing(page: str, run_by_the_page: tuple[Path, list[str]]) -> None:
    folder, _ = run_by_the_page
    printed = python(blocks(page, "python")[0], folder)
    assert "eval: 3 succeeded" in printed
    assert "started" not in printed


@pytest.mark.journey
def test_the_same_in_a_bucket_as_jobs_on_the_emulated_vertex_ai(page: str, tmp_path: Path) -> None:
    """Orbax removes some folders of a train job in a bucket, but leaves the journal and the copies alone."""
    pytest.importorskip("seqio")
    pytest.importorskip("google.cloud.aiplatform_v1")
    for name, text in zip(GIN, blocks(page, "gin"), strict=True):
        (tmp_path / f"{name}.gin").write_text(text)
    command = blocks(page, "shell")[0].splitlines()[0].replace("$PWD/model", "gs://my-bucket/run")
    command = command.replace(" -- ", " --on=vertex --timeout=1h --skip_to_newest -- ", 1)
    words = f"exec --google-root=cloud --create-buckets --slice=none -- sh -c {shlex.quote(command)}"
    printed = bash(f"{sys.executable} -m t5x_harness {words}", tmp_path)
    assert "newest checkpoint: checkpoint_4 of 4 steps\n" in printed
    run = tmp_path / "cloud" / "buckets" / "my-bucket" / "run"
    assert list((run / "inference_eval" / "sample_classify").glob("events.out.tfevents.*"))
    assert [path for path in (run / "auxiliary" / "eval" / "held").rglob("*") if path.is_file()] == []


@pytest.mark.journey
@pytest.mark.usefixtures("imported")
def test_the_test_passes(page: str, pytester: pytest.Pytester) -> None:
    for name, text in zip(GIN, blocks(page, "gin"), strict=True):
        (pytester.path / f"{name}.gin").write_text(text)
    pytester.makepyfile(blocks(page, "python")[1])
    pytester.runpytest_subprocess("-q", "--strict-markers").assert_outcomes(passed=2)
