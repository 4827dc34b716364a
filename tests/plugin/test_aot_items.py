"""The stage aot as an item of its own: asked for by -m or an option, and skipped where nothing can be compiled."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from t5x_harness.plan.arrays import TEMPORARIES_UNKNOWN
from t5x_harness.promotion.expression import selects

Run = Callable[..., pytest.RunResult]

WITHOUT_LIBTPU = "import sys\n\nsys.modules['libtpu'] = None\n"
INSTALL = "the TPU compiler is not installed: python -m pip install 't5x-harness[[]aot]'"


def collected(run: Run, *arguments: str) -> list[str]:
    """Returns the stages that a session selects of train.gin."""
    lines = run("--collect-only", "-q", *arguments).outlines
    return [line.removeprefix("train.gin::") for line in lines if line.startswith("train.gin::")]


@pytest.mark.parametrize(
    ("expression", "selected"),
    [("", True), ("aot", True), ("smoke or aot", True), ("smoke", False), ("tpu", False), ("not slow", True)],
)
def test_items_of_aot_are_selected_by_their_own_mark_alone(expression: str, selected: bool) -> None:
    assert selects(expression, "aot") is selected


def test_m_and_the_option_ask_for_the_item_and_nothing_else_does(run: Run, folder: Path) -> None:
    others = ["lint", "resolve", "plan", "train", "eval", "infer"]
    with_aot = [*others[:3], "aot", *others[3:]]
    assert collected(run, "train.gin") == others
    assert collected(run, "-m", "aot", "train.gin") == ["aot"]
    assert collected(run, "-m", "smoke or aot", "train.gin") == with_aot
    assert collected(run, "--t5x-aot=lower", "train.gin") == with_aot
    (folder / "pyproject.toml").write_text("[tool.t5x_harness]\ngin_files = ['train.gin']\naot = 'lower'\n")
    assert collected(run, "-m", "aot") == ["aot"]
    result = run("--collect-only", "-m", "smoke", "--t5x-aot=lower")
    result.stdout.fnmatch_lines(["t5x-harness: -m 'smoke' leaves the stage aot out; 'or aot' runs it, too"])
    assert not [line for line in result.outlines if "aot>" in line]


def test_what_cannot_be_compiled_here_is_skipped_before_anything_runs_for_it(run: Run, folder: Path) -> None:
    result = run("-m", "aot", "--t5x-in-process", "train.gin", "-rs")
    result.assert_outcomes(skipped=1, deselected=6)
    (folder / "conftest.py").write_text(WITHOUT_LIBTPU)
    result = run("-m", "aot", "train.gin", "-rs")
    result.assert_outcomes(skipped=1, deselected=6)
    result.stdout.fnmatch_lines([f"SKIPPED * {INSTALL}"])
    result.stdout.no_fnmatch_line("*resolve*")


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
def test_the_item_lowers_the_programs_after_the_stages_that_it_needs(run: Run) -> None:
    result = run("-m", "aot", "--t5x-aot=lower", "train.gin", "-v")
    result.assert_outcomes(passed=1, deselected=6)
    result.stdout.fnmatch_lines(
        ["train.gin::aot PASSED*", "run *lint *resolve *plan *aot *", "train *ok *ok *ok *ok *"]
    )
    result.stdout.fnmatch_lines(["*whether train fits v3-8: it was lowered, and not compiled*"])
    result.stdout.no_fnmatch_line(f"*{TEMPORARIES_UNKNOWN[:40]}*")
