"""Configs that name what is out of reach run as they are, and the report says what was generated."""

from __future__ import annotations

import json

import pytest

from t5x_harness.spec import Outcome, Stage
from t5x_harness.standins.rows import Samples

VOCABULARY = "vocabulary: 'gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model'"
TFDS = "TFDS data of task translate: wmt_t2t_translate/de-en:1.0.0 in gs://my-bucket/tfds"


def test_generated_examples_are_not_judged_as_if_they_were_the_jobs(run):
    """The lengths above cut every generated text, and 128 generated examples are fewer than a batch of 4096."""
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
