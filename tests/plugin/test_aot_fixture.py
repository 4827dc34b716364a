"""``t5x_aot`` in a test: the numbers of a config's programs, and what does not fit."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from t5x_harness.aot.numbers import AotNumbers
from t5x_harness.spec import Measure, Outcome, Stage, StageResult

Run = Callable[..., pytest.RunResult]

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
    (folder / "conftest.py").write_text("import sys\n\nsys.modules['libtpu'] = None\n")
    result = run("test_fits.py", "-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(
        ["SKIPPED *the TPU compiler is not installed: python -m pip install 't5x-harness[[]aot]'"]
    )


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
