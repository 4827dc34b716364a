"""The examples of docs/promotion.md run or are parsed, and its lists are complete."""

import re
import shutil
from pathlib import Path

import pytest
from page_blocks import blocks

from t5x_harness.promotion.marker import FIELDS, promotes
from t5x_harness.sample_tasks import CONFIGS
from t5x_harness.settings.project import load_project


def test_its_tests_are_promoted_as_it_says(page: str, pytester: pytest.Pytester, imported: None) -> None:
    source, conftest = blocks(page, "python")
    (table,) = blocks(page, "toml")
    pytester.makepyfile(test_page=source, conftest=conftest)
    pytester.makepyprojecttoml(table)
    shutil.copytree(CONFIGS / "models", pytester.path / "models")
    shutil.copy(CONFIGS / "finetune_answer.gin", pytester.path / "finetune.gin")
    (pytester.path / "data").mkdir()
    (pytester.path / "data" / "rows.tsv").write_text("a\tb\n")
    result = pytester.runpytest_subprocess("-m", "tpu", "--t5x-tpu-dry-run", "-k", "machine", "--t5x-runtime=embedded")
    result.assert_outcomes(skipped=1, deselected=1)
    result.stdout.fnmatch_lines(
        [
            "t5x-harness: -m 'tpu' promotes * to jobs on Vertex AI (project my-project, us-central1, image *t5x:1); *",
            "test-on-the-machine-itself-*: v5e-4: 4 chips x at most 4 h = 16 chip-hours",
            "where: project my-project, europe-west4",
            '      machine_type: "ct5lp-hightpu-4t"',
        ]
    )


def test_its_tables_are_read(page: str, tmp_path: Path) -> None:
    (table,) = blocks(page, "toml")
    (tmp_path / "pyproject.toml").write_text(table)
    project = load_project(tmp_path)
    assert project.vertex["image"].endswith("/t5x:1")
    assert project.tpu == {"accelerator_type": "TPU_V3", "accelerator_count": 8}


def test_it_lists_every_argument_of_the_marker(page: str) -> None:
    section = page.partition("## What the marker takes")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", "".join(rows))) == set(FIELDS)


def test_the_expressions_do_what_it_says(page: str) -> None:
    rows = re.findall(r"^\| (`.*?) \| (yes|no)", page, re.MULTILINE)
    assert len(rows) == 2
    for expressions, answer in rows:
        for expression in re.findall(r"`([^`]+)`", expressions):
            assert promotes(expression) is (answer == "yes"), expression
