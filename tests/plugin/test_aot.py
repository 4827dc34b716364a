"""Programs compiled for a TPU: as a stage of a config, and as numbers that a test asserts with ``t5x_aot``."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from t5x_harness.aot.numbers import AotNumbers
from t5x_harness.plan.arrays import TEMPORARIES_UNKNOWN
from t5x_harness.promotion.marker import selects
from t5x_harness.spec import Measure, Outcome, Stage, StageResult

Run = Callable[..., pytest.RunResult]

WITHOUT_LIBTPU = "import sys\n\nsys.modules['libtpu'] = None\n"
INSTALL = "the TPU compiler is not installed: python -m pip install 't5x-harness[[]aot]'"


def collected(run: Run, *arguments: str) -> list[str]:
    """Returns the stages of train.gin that a session selects."""
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


TEST = """
import pytest


@pytest.mark.smoke
@pytest.mark.slice("v3-8")
def test_numbers(t5x_aot):
    config = t5x_aot("infer.gin", mode="memory")
    (score,) = [config.score]
    assert score.fits and not config.findings
    assert 0 < score.kinds["parameters"] < score.hbm_peak <= score.hbm_needed
    lost = [each.bytes for each in score.padding]
    assert 0 < sum(lost) <= score.kinds["padding"]
    assert all(each.in_tiles > each.size for each in score.padding)
    assert 0 < score.matrix_unit_padding < 1
    assert score.headroom > 10 * 2**30
    assert score.flops > 0 and score.step_seconds_at_least > 0
    assert {(each.axis, each.count > 0, each.bytes > 0) for each in score.collectives} <= {("data", True, True)}
    with pytest.raises(AttributeError, match="the config has no program train; it has score"):
        config.train


def test_a_mistake_of_the_config_fails_the_test(t5x_aot):
    t5x_aot("infer.gin", bindings=["utils.DatasetConfig.no_such = 1"])
"""
NUMBERS = (("fits", 1, "train"), ("hbm_peak", 7, "train"), ("fits", 0, "predict"))


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
def test_a_test_asserts_what_a_config_takes_of_a_tpu(run: Run, folder: Path) -> None:
    (folder / "test_fits.py").write_text(TEST)
    result = run("test_fits.py")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*no_such*"])


def test_without_the_compiler_the_test_is_skipped_with_what_installs_it(run: Run, folder: Path) -> None:
    (folder / "test_fits.py").write_text(TEST)
    (folder / "conftest.py").write_text(WITHOUT_LIBTPU)
    result = run("test_fits.py", "-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines([f"SKIPPED *{INSTALL}"])


def test_a_number_that_the_compiler_does_not_give_says_why() -> None:
    measures = tuple(Measure(name, value, of=of) for name, value, of in NUMBERS)
    numbers = AotNumbers(
        StageResult(Stage.AOT, Outcome.FAILED, facts=(("score", "can be lowered"),), measures=measures)
    )
    assert numbers.train.fits
    assert not numbers.predict.fits
    assert numbers.train.hbm_peak == 7
    with pytest.raises(
        AttributeError, match="predict has no hbm_peak: it does not fit, and was not compiled to the end"
    ):
        numbers.predict.hbm_peak  # noqa: B018
    with pytest.raises(AttributeError, match="score has no fits: it was lowered, and not compiled"):
        numbers.score.fits  # noqa: B018
    with pytest.raises(AttributeError, match="the config has no program train_eval; it has train, predict, score"):
        numbers.train_eval  # noqa: B018
