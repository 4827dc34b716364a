"""Run configs become items, one for each stage; fragments do not; what is collected is the user's choice."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., pytest.RunResult]

TRAIN = ["lint", "resolve", "plan", "train", "eval", "infer"]
INFER = ["lint", "resolve", "plan", "infer"]


def collected(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line]


def items(file: str, stages: list[str]) -> list[str]:
    return [f"{file}::{stage}" for stage in stages]


def test_a_file_has_the_stages_of_its_mode(run: Run) -> None:
    result = run("--co", "-q", "infer.gin", "train.gin")
    assert collected(result) == [*items("infer.gin", INFER), *items("train.gin", TRAIN)]
    assert result.ret == pytest.ExitCode.OK


def test_one_stage_is_chosen_by_its_name(run: Run) -> None:
    assert collected(run("--co", "-q", "train.gin::eval")) == ["train.gin::eval"]
    assert collected(run("--co", "-q", "train.gin", "infer.gin", "-k", "plan")) == [
        "train.gin::plan",
        "infer.gin::plan",
    ]
    assert collected(run("--co", "-q", "train.gin", "infer.gin", "-k", "train and not lint")) == items(
        "train.gin", TRAIN[1:]
    )


def test_a_folder_gives_its_run_configs_to_smoke_only(run: Run, folder: Path) -> None:
    (folder / "test_python.py").write_text("def test_it(): pass\n")
    everything = [*items("infer.gin", INFER), *items("train.gin", TRAIN)]
    assert collected(run("--co", "-q", "-m", "smoke", ".")) == everything
    assert collected(run("--co", "-q", ".")) == ["test_python.py::test_it"]
    assert collected(run("--co", "-q", "-m", "not smoke", ".")) == ["test_python.py::test_it"]
    assert collected(run("--co", "-q")) == ["test_python.py::test_it"]


def test_globs_of_the_configuration_are_collected(run: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.t5x_harness]\ngin_files = ["inf*.gin", "models/*.gin"]\n')
    assert collected(run("--co", "-q")) == items("infer.gin", INFER)
    (folder / "pyproject.toml").write_text('[tool.pytest.ini_options]\nt5x_gin_files = ["tr*.gin"]\n')
    assert collected(run("--co", "-q")) == items("train.gin", TRAIN)
    assert collected(run("--co", "-q", "infer.gin")) == items("infer.gin", INFER)


DECLARED = """\
[tool.t5x_harness]
search_paths = ["."]

[[tool.t5x_harness.runs]]
name = "declared"
gin_files = ["models/tiny_pieces.gin", "t5x/configs/runs/infer.gin"]
bindings = { MIXTURE_OR_TASK_NAME = "sample_answer", DROPOUT_RATE = 0.0 }

[[tool.t5x_harness.runs]]
name = "open"
gin_files = ["models/tiny_pieces.gin"]
"""


def test_declared_runs_stand_below_pyproject(run: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(DECLARED)
    declared = items("pyproject.toml::declared", ["lint"])  # its values are not all there, so its mode is not certain
    result = run("--co", "-q")
    assert collected(result) == [*declared, "pyproject.toml::open::lint"]
    (folder / "pyproject.toml").write_text(
        DECLARED.replace(
            "DROPOUT_RATE = 0.0",
            "DROPOUT_RATE = 0.0, TASK_FEATURE_LENGTHS = { inputs = 8, targets = 8 }, CHECKPOINT_PATH = 'gs://b/checkpoint_8'",
        )
    )
    result = run("--co", "-q", "-m", "smoke")
    assert collected(result)[:-1] == items("pyproject.toml::declared", INFER)


def test_a_declared_run_that_is_none_says_what_it_lacks(run: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(DECLARED)
    result = run("-k", "open")
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(["models/tiny_pieces.gin:1: error GIN31: this is no run config: *"])


def test_items_are_at_the_line_that_makes_the_file_a_run(run: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(DECLARED)
    run("-k", "lint", "-o", "junit_family=xunit1", "--junitxml=out.xml", "infer.gin", "train.gin", "pyproject.toml")
    lines = {
        case.get("classname"): (case.get("file"), int(case.get("line", -1)))
        for case in ElementTree.parse(folder / "out.xml").iter("testcase")
    }
    at = {name: (folder / name).read_text().splitlines() for name in ("infer.gin", "train.gin", "pyproject.toml")}
    assert lines["infer.gin"] == ("infer.gin", at["infer.gin"].index("infer_script.infer.mode = 'score'"))
    assert lines["train.gin"] == ("train.gin", at["train.gin"].index("include 't5x/configs/runs/finetune.gin'"))
    assert lines["pyproject.toml.declared"] == (
        "pyproject.toml",
        at["pyproject.toml"].index("[[tool.t5x_harness.runs]]"),
    )


def test_the_header_names_runtime_slice_and_mesh(run: Run) -> None:
    result = run("--co", "infer.gin", "--t5x-slice=v3-32")
    result.stdout.fnmatch_lines(
        ["t5x-harness *: embedded T5X *, slice v3-32 as 32 CPU devices, mesh data 32 x model 1 at num_partitions=1"]
    )
