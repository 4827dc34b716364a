"""Configs that name what is out of reach, or that are in buckets, run unchanged; reports say what was generated."""

import json
from pathlib import Path

import pytest

from t5x_harness.google.pool import GooglePool
from t5x_harness.runs.local import LocalExecutor
from t5x_harness.runs.run import Run
from t5x_harness.spec import Outcome, RunSettings, RunSpec, RuntimeChoice, Stage
from t5x_harness.standins.rows import Samples
from t5x_harness.workers.zygote import Zygote

VOCABULARY = "vocabulary: 'gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model'"


def test_generated_examples_are_not_judged_as_if_they_were_the_jobs(run):
    """The config's lengths cut every generated text, and 128 generated examples are fewer than a batch of 4096."""
    result = run(gin="BATCH_SIZE = 4096\n").stage(Stage.RESOLVE)
    assert result.outcome is Outcome.PASSED, result.findings
    assert not {"SEQ16", "SEQ36"} & {finding.code for finding in result.findings}
    assert "examples generated from its features" in dict(result.facts)["sources"]
    assert (
        "whether wmt_t2t_translate/de-en:1.0.0 is prepared in gs://my-bucket/tfds, and what its examples are like"
        in result.not_checked
    )


def test_the_plan_counts_no_generated_examples(run):
    backend = run()
    assert backend.stage(Stage.PLAN).outcome is Outcome.PASSED
    facts = dict(backend.stage(Stage.PLAN).facts)
    assert not [name for name in facts if name.startswith("epochs over")]
    assert facts["infer_eval reads"].startswith("all examples of translate validation")


def test_the_users_rows_win(run):
    rows = [{"de": f"Haus {number}", "en": f"house {number}"} for number in range(3)]
    backend = run(samples=(Samples("translate", {"*": rows}).to_text(),))
    result = backend.stage(Stage.RESOLVE)
    assert result.outcome is Outcome.PASSED, result.findings
    assert "3 declared rows" in dict(result.facts)["sources"]
    assert set(backend.result().standins) == {VOCABULARY, "source of task: 'translate'"}


def test_rows_with_other_columns_fail_where_the_preprocessor_reads_them(run):
    rows = [{"german": "Haus", "english": "house"}]
    result = run(samples=(Samples("translate", {"*": rows}).to_text(),)).stage(Stage.RESOLVE)
    assert result.outcome is Outcome.FAILED
    assert "'de'" in result.findings[0].message
    assert result.findings[0].location.file.endswith("tasks.py")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wmt_t2t_translate/de-en:9.0.0", "Dataset wmt_t2t_translate cannot be loaded at version 9.0.0, only: 1.0.0"),
        ("no_such_dataset:1.0.0", "Dataset no_such_dataset not found"),
        ("xsum:1.0.0", "it generates only 1.1.0"),
    ],
)
def test_what_tfds_does_not_have_stays_an_error(run, name, message):
    before = '"wmt_t2t_translate/de-en:1.0.0", tfds_data_dir="gs://my-bucket/tfds"'
    result = run(tasks=(before, f'"{name}", splits=["train", "validation"]')).stage(Stage.RESOLVE)
    assert [finding.code for finding in result.errors] == ["SEQ31"]
    assert message in result.errors[0].message


def test_off_generates_nothing(run):
    backend = run(standins="off")
    result = backend.stage(Stage.RESOLVE)
    assert backend.result().standins == ()
    assert "the data of translate: gs://my-bucket/tfds cannot be read here" in result.not_checked


def test_a_file_out_of_reach_asks_for_rows(run):
    before = '"wmt_t2t_translate/de-en:1.0.0", tfds_data_dir="gs://my-bucket/tfds"'
    source = f"seqio.TfdsDataSource({before})"
    pattern = {"train": "gs://my-bucket/train.txt", "validation": "gs://my-bucket/dev.txt"}
    result = run(tasks=(source, f"seqio.TextLineDataSource({json.dumps(pattern)})")).stage(Stage.RESOLVE)
    finding = result.errors[0]
    assert finding.code == "RUN09"
    assert finding.message == (
        "task translate reads gs://my-bucket/train.txt, which is out of reach here, and no rows are declared for it"
    )
    assert str(finding.location) == "run.gin:10"
    assert finding.fix == (
        'give a few in [tool.t5x_harness.samples] of pyproject.toml, translate = "rows.jsonl", or in a test with the '
        "fixture sample_rows; or give the bucket, --gcs-root (pytest: --t5x-gcs-root)"
    )


TASKS = """
import seqio
import tensorflow as tf
from t5x_harness.sample_tasks import metrics


@seqio.map_over_dataset
def split(line):
    parts = tf.strings.split(line, "\\t")
    return {"inputs": parts[0], "targets": parts[1]}


seqio.TaskRegistry.add(
    "lines",
    source=seqio.TextLineDataSource({s: f"gs://my-bucket/data/{s}.tsv" for s in ("train", "validation")}),
    preprocessors=[split, seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
    output_features={name: seqio.Feature(seqio.ByteVocabulary()) for name in ("inputs", "targets")},
    metric_fns=[metrics.accuracy],
)
"""

CONFIG = """
from __gin__ import dynamic_registration
import seqio
import tasks
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/configs/runs/finetune.gin'
include '/gcs/my-bucket/configs/sizes.gin'
MIXTURE_OR_TASK_NAME = 'lines'
TASK_FEATURE_LENGTHS = {'inputs': 32, 'targets': 32}
TRAIN_STEPS = 700
USE_CACHED_TASKS = False
DROPOUT_RATE = 0.0
LOSS_NORMALIZING_FACTOR = 100
VOCABULARY = @seqio.ByteVocabulary()
INITIAL_CHECKPOINT_PATH = 'gs://their-bucket/model/checkpoint_500'
MODEL_DIR = 'gs://my-bucket/runs/first'
"""


@pytest.fixture
def buckets(tmp_path: Path) -> Path:
    """Makes the user's folder of buckets, with files that an earlier job left in MODEL_DIR."""
    bucket = tmp_path / "buckets" / "my-bucket"
    for name in ("data", "configs", "runs/first/train"):
        (bucket / name).mkdir(parents=True)
    for split in ("train", "validation"):
        (bucket / "data" / f"{split}.tsv").write_text("".join(f"reverse {n}\t{n} esrever\n" for n in range(20)))
    (bucket / "configs" / "sizes.gin").write_text("BATCH_SIZE = 8\n")
    (bucket / "runs" / "first" / "train" / "events.out.tfevents.old").write_text("of an earlier job")
    return tmp_path / "buckets"


@pytest.mark.journey
def test_a_config_in_buckets_runs_as_it_is(zygote: Zygote, tmp_path: Path, buckets: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "run.gin").write_text(CONFIG)
    spec = RunSpec(
        ("run.gin",),
        slice="v3:1x1",
        runtime=RuntimeChoice.EMBEDDED,
        python_path=(str(tmp_path),),
        cwd=str(tmp_path),
        settings=RunSettings(gcs_root=str(buckets)),
    )
    google = GooglePool(spec.settings.gcs_root, spec.settings.gcs)
    try:
        with Run(spec, LocalExecutor(zygote, timeout=300, google=google), workspace=tmp_path / "w") as run:
            for found in run.finish():
                assert found.outcome is Outcome.PASSED, (found.findings, found.log_tail)
            result = run.result()
        # The results that are here afterwards do not depend on the buckets, which the next run gets afresh.
        google.enter()
    finally:
        google.close()
    assert "MODEL_DIR" not in {change.binding for stage in result.stages for change in stage.changes}
    assert {c.why for stage in result.stages for c in stage.changes if c.binding == "INITIAL_CHECKPOINT_PATH"} == {
        "standin"
    }
    assert result.standins == ("INITIAL_CHECKPOINT_PATH: 'gs://their-bucket/model/checkpoint_500'",)
    assert (result.model_dir, result.steps) == (str(tmp_path / "w" / "model"), 504)
    assert [checkpoint.step for checkpoint in result.checkpoints] == [500, 502, 504]
    assert all(Path(checkpoint.path).is_dir() for checkpoint in result.checkpoints)
    assert "MODEL_DIR = 'gs://my-bucket/runs/first'" in Path(result.model_dir, "config.gin").read_text()
    assert sorted(result.metrics["train/loss"]) == [501, 502, 503, 504]
    assert dict(result.stage("train").facts)["restored"].startswith("checkpoint_504: ")
    assert result.predictions
    assert sorted(path.name for path in (buckets / "my-bucket" / "runs" / "first").rglob("*")) == [
        "events.out.tfevents.old", "train",
    ]  # fmt: skip
