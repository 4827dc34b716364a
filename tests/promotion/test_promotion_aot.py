"""A promoted run that does not fit its slice, by the TPU's own compiler, is not sent; the report has the verdict."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable

import pytest

from t5x_harness.aot.libtpu import INSTALL
from t5x_harness.report.table import verdicts
from t5x_harness.runs.job import aot_mode
from t5x_harness.sample_tasks import CONFIGS
from t5x_harness.spec import AotMode, Measure, Outcome, Stage, StageResult

Run = Callable[..., pytest.RunResult]

TESTS = """
import pytest

pytestmark = pytest.mark.tpu(accelerator_type="TPU_V3", accelerator_count=8, full_size=True)

def test_fits(t5x_run):
    t5x_run("sums.gin")

def test_does_not(t5x_run):
    ordinary = [f"{each}_eval/utils.DatasetConfig.batch_size = 32" for each in ("train", "infer")]
    t5x_run("sums.gin", bindings=["BATCH_SIZE = 4_194_304", *ordinary])
"""


@pytest.fixture
def run(pytester: pytest.Pytester, imported: None, monkeypatch: pytest.MonkeyPatch, run_pytest: Run) -> Run:
    """Runs pytest on a project with a config and tests, which promotes them to an emulated Vertex AI."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    shutil.copytree(CONFIGS / "models", pytester.path / "models")
    shutil.copy(CONFIGS / "finetune_sums.gin", pytester.path / "sums.gin")
    pytester.makepyfile(test_jobs=TESTS)

    def call(*arguments: str) -> pytest.RunResult:
        return run_pytest("-m", "tpu", "--t5x-vertex=emulated", "--t5x-runtime=embedded", *arguments)

    return call


@pytest.mark.journey
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
def test_what_does_not_fit_is_not_sent(run: Run) -> None:
    result = run("test_jobs.py", "--t5x-tpu-dry-run", "--t5x-tpu-aot=memory")
    result.assert_outcomes(skipped=1, failed=1)
    result.stdout.fnmatch_lines(["*error AOT01: train needs *of each device of v3-8, and a program may use 15.48 GiB*"])
    assert len([line for line in result.outlines if "TPU job, not sent" in line]) == 1
    result = run("test_jobs.py", "--t5x-tpu-dry-run", "--t5x-tpu-aot=off", "-k", "does_not")
    result.assert_outcomes(skipped=1, deselected=1)
    assert len([line for line in result.outlines if "TPU job, not sent" in line]) == 1


def test_what_is_sent_at_full_size_is_compiled_before_where_that_is_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    assert aot_mode("off", full_size=True) == (None, "this was asked to be left out")
    assert aot_mode("memory", full_size=False) == (AotMode.MEMORY, "")
    assert aot_mode(None, full_size=False) == (None, "")
    monkeypatch.setitem(sys.modules, "libtpu", None)
    assert aot_mode(None, full_size=True) == (None, f"the TPU compiler is not installed: {INSTALL}")
    monkeypatch.setitem(sys.modules, "libtpu", importlib.util.module_from_spec(importlib.util.find_spec("json")))  # type: ignore[arg-type]
    assert aot_mode(None, full_size=True) == (AotMode.DEPTHS, "")


def test_the_verdict_has_peak_headroom_and_cost() -> None:
    numbers = {"fits": 1, "hbm_peak": 2**31, "hbm_needed": 2**31, "hbm_headroom": 2**30, "hbm_usable": 3 * 2**30}
    cost = {"chip_hours_at_least": 12.34, "usd_at_least": 27.148}
    measures = [Measure(name, value, of="train") for name, value in {**numbers, **cost}.items()]
    measures.append(Measure("fits", 0, of="predict"))
    assert [*verdicts(StageResult(Stage.AOT, Outcome.FAILED, measures=tuple(measures)))] == [
        "train fits, peak 2 GiB, headroom 1 GiB of 3 GiB, at least 12.3 chip-hours, 27.15 USD by the list",
        "predict does not fit",
    ]


def test_the_verdict_says_what_is_needed_beside_the_peak() -> None:
    numbers = {"fits": 1, "hbm_peak": 2**31, "hbm_needed": 5 * 2**29, "hbm_headroom": 2**29, "hbm_usable": 3 * 2**30}
    measures = tuple(Measure(name, value, of="train") for name, value in numbers.items())
    assert [*verdicts(StageResult(Stage.AOT, Outcome.PASSED, measures=measures))] == [
        "train fits, peak 2 GiB, needs 2.5 GiB, headroom 512 MiB of 3 GiB",
    ]
