"""Folders in a bucket that orbax would remove are reported, and so is the command that T5X's writer needs."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from t5x_harness.findings.rule import evaluated, trained
from t5x_harness.google.pool import GooglePool
from t5x_harness.spec import Finding, RunResult, Severity, Stage, StageResult
from t5x_harness.upstream.orbax import takes_for_bucket

SPLIT = "utils.DatasetConfig.split = 'validation'"
FOLDER = "gs://my-bucket/run"
RESTORING = (
    "utils.RestoreCheckpointConfig.mode = 'specific'",
    "utils.CheckpointConfig.restore = @utils.RestoreCheckpointConfig()",
)

Plan = Callable[..., StageResult]


@pytest.fixture
def plan(run_until: Callable[..., RunResult], tmp_path: Path) -> Iterator[Plan]:
    """Yields a function that plans a config with files in a user's bucket, in an emulated Google Cloud with it."""
    with contextlib.ExitStack() as stack:

        def run(gin: str, *objects: str) -> StageResult:
            for name in objects:
                file = tmp_path / "buckets/my-bucket" / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch()
            google = stack.enter_context(contextlib.closing(GooglePool(tmp_path / "buckets")))
            return run_until(Stage.PLAN, gin, env=google.enter()).stages[-1]

        yield run


def only(result: StageResult, code: str) -> Finding:
    (finding,) = [f for f in result.findings if f.code == code]
    return finding


def removed(result: StageResult) -> Finding:
    return only(result, "CKP22")


def test_what_earlier_jobs_left_in_model_dir(plan: Plan) -> None:
    unfinished = ("run/checkpoint_5.orbax-checkpoint-tmp-1/state/d", "run/checkpoint_6/state/d")  # these should go
    left = ("run/train/events", "run/training_eval/events", "run/inference_eval/x", "run/zz/x", "run/config.gin")
    found = removed(plan(trained(f"MODEL_DIR = '{FOLDER}'"), *unfinished, *left))
    assert found.message == (
        "gs://my-bucket/run holds inference_eval, train, training_eval and 1 more, without commit_success.txt: T5X has "
        "orbax remove such folders at gs:// as unfinished checkpoints, before it saves"
    )
    assert (found.binding, found.fix) == ("MODEL_DIR", "use another MODEL_DIR, or copy them elsewhere first")


def test_a_checkpoint_in_the_older_layout_that_is_evaluated(plan: Plan) -> None:
    gin = evaluated(SPLIT, "EVAL_OUTPUT_DIR = '/x'", f"CHECKPOINT_PATH = '{FOLDER}/checkpoint_6'")
    older = ("run/checkpoint_6/checkpoint", "run/checkpoint_6/target.token_embedder.embedding/.zarray")
    found = removed(plan(gin, *older))
    assert found.message == (
        "gs://my-bucket/run/checkpoint_6 holds target.token_embedder.embedding, without commit_success.txt: T5X has "
        "orbax remove such folders at gs:// as unfinished checkpoints, while it restores"
    )
    assert found.fix == "bind use_orbax = False, which reads this layout and removes nothing"


@pytest.mark.parametrize("mode", ["latest", "all"])
def test_a_checkpoint_that_is_removed_before_it_is_evaluated(plan: Plan, mode: str) -> None:
    gin = evaluated(SPLIT, "EVAL_OUTPUT_DIR = '/x'", f"CHECKPOINT_PATH = '{FOLDER}'")
    found = removed(plan(f"{gin}utils.RestoreCheckpointConfig.mode = '{mode}'\n", "run/checkpoint_6/checkpoint"))
    assert found.severity is Severity.ERROR
    assert found.message.endswith("while it restores checkpoint_6, which is one of them")
    assert found.fix == "restore one checkpoint_N in mode 'specific', or copy them elsewhere first"


def test_without_orbax_nothing_is_removed_and_gcloud_is_needed(plan: Plan) -> None:
    result = plan(trained(f"MODEL_DIR = '{FOLDER}'", "train_script.train.use_orbax = False"), "run/train/events")
    assert "CKP22" not in {f.code for f in result.findings}
    assert (
        "whether the job has the command gcloud: with use_orbax = False, T5X calls `gcloud storage mv` for each "
        f"checkpoint that it has written to {FOLDER}"
    ) in result.not_checked


def test_the_newest_checkpoint_has_no_commit_file(plan: Plan) -> None:
    older = ("run/checkpoint_5/state/d", "run/checkpoint_5/commit_success.txt")
    result = plan(trained(f"MODEL_DIR = '{FOLDER}'"), "run/checkpoint_6/state/d", *older)
    found = only(result, "CKP31")
    assert found.message == (
        "gs://my-bucket/run/checkpoint_6 has no commit_success.txt, so orbax removes it as unfinished; this start of "
        "the job dies of it, and the next one goes on from checkpoint_5"
    )
    assert found.fix == (
        "if no other job is saving there, remove it first: gcloud storage rm -r gs://my-bucket/run/checkpoint_6; T5X "
        "then goes on from checkpoint_5"
    )
    assert (found.severity, found.binding) == (Severity.ERROR, "MODEL_DIR")
    assert "CKP27" not in {f.code for f in result.findings}


def test_a_mounted_bucket_counts_where_orbax_takes_it_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from orbax.checkpoint._src.path import gcs_utils

    assert [takes_for_bucket(path) for path in ("gs://b/run", "/gcs/b/run", "/data/run")] == [True, False, False]
    monkeypatch.setattr(gcs_utils, "_GCS_PATH_PREFIX", ("gs://", "/gcs/"))
    assert [takes_for_bucket(path) for path in ("gs://b/run", "/gcs/b/run", "/data/run")] == [True, True, False]


def test_a_checkpoint_that_was_copied_without_its_commit_file(plan: Plan, tmp_path: Path) -> None:
    metadata = tmp_path / "buckets/my-bucket/run/checkpoint_6/_CHECKPOINT_METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text('{"commit_timestamp_nsecs": 1795813065687701}')
    path = (f"utils.RestoreCheckpointConfig.path = '{FOLDER}/checkpoint_6'", *RESTORING)
    found = only(plan(trained(*path), "run/checkpoint_6/state/d"), "CKP31")
    assert found.message == (
        "gs://my-bucket/run/checkpoint_6 has no commit_success.txt: T5X stops with `Found incomplete checkpoint`"
    )
    assert found.fix == (
        "it was written to its end, and copied without this file: touch commit_success.txt && gcloud storage cp "
        "commit_success.txt gs://my-bucket/run/checkpoint_6/"
    )


def test_a_checkpoint_whose_arrays_another_job_removed_while_it_was_saved(plan: Plan) -> None:
    older = ("run/checkpoint_5/state/d", "run/checkpoint_5/commit_success.txt")
    result = plan(trained(f"MODEL_DIR = '{FOLDER}'"), "run/checkpoint_6/commit_success.txt", *older)
    found = only(result, "CKP27")
    assert found.message.endswith(
        "run/checkpoint_6 is damaged: it has no arrays, neither a folder state (orbax) nor a file checkpoint"
    )
    assert found.fix == (
        "copy it again from where it was written, or move it out of gs://my-bucket/run: T5X then goes on from "
        "checkpoint_5"
    )
