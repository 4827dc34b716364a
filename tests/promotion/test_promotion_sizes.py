"""The marker's ``steps`` and ``full_size``: the job's bindings; a job that does not fit its slice is not sent."""

import functools
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

MACHINE = 'accelerator_type = "TPU_V3"\naccelerator_count = 8\n'
HEAD = """
import pytest

pytestmark = pytest.mark.tpu(accelerator_type="TPU_V3", accelerator_count=8)
"""
ORDERS = """
@pytest.mark.tpu(steps=7)
@pytest.mark.parametrize("full", [False, True])
def test_given(t5x_run, full):
    t5x_run("sums.gin", full_size=full)

def test_default(t5x_run):
    t5x_run("sums.gin")

@pytest.mark.tpu(full_size=True)
def test_full_size(t5x_run):
    t5x_run("sums.gin")

@pytest.mark.tpu(steps=3, full_size=True)
def test_some_full_size_steps(t5x_run):
    t5x_run("sums.gin")
"""


@pytest.fixture
def run(pytester: pytest.Pytester, promote: Run) -> Run:
    """Runs pytest on a project with a config and tests."""
    shutil.copy(CONFIGS / "finetune_sums.gin", pytester.path / "sums.gin")
    return functools.partial(promote, "")


@pytest.mark.journey
def test_what_a_job_would_bind(run: Run, pytester: pytest.Pytester) -> None:
    """Covers a config without a marker, which uses the project's table, and a call whose full_size takes precedence."""
    pytester.makepyfile(test_orders=HEAD + ORDERS)
    pytester.makepyprojecttoml(f"[tool.t5x_harness.tpu]\n{MACHINE}steps = 5\n")
    result = run("sums.gin", "test_orders.py", "--t5x-tpu-dry-run", "-k", "given or sums.gin")
    result.assert_outcomes(passed=3, skipped=5)
    bound = _printed(result.stdout.lines)
    assert {name: job["TRAIN_STEPS"] for name, job in bound.items()} == {
        "sums": "10005",
        "test-given-false": "10007",
        "test-given-true": "10007",
    }
    assert {name for name, job in bound.items() if "BATCH_SIZE" in job} == {"sums", "test-given-false"}


@pytest.mark.journey
def test_without_steps_a_shrunk_job_trains_few_and_another_those_of_its_config(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(test_orders=HEAD + ORDERS)
    result = run("test_orders.py", "--t5x-tpu-dry-run", "-k", "default or full_size")
    result.assert_outcomes(skipped=3)
    bound = _printed(result.stdout.lines)
    assert bound["test-default"]["TRAIN_STEPS"] == "10004"
    assert bound["test-full-size"].keys() == {"MODEL_DIR", "INITIAL_CHECKPOINT_PATH"}
    few = bound["test-some-full-size-steps"]
    assert few.keys() == {"MODEL_DIR", "INITIAL_CHECKPOINT_PATH", "TRAIN_STEPS"}
    assert few["TRAIN_STEPS"] == "10003"
    assert few["INITIAL_CHECKPOINT_PATH"].endswith("/checkpoint_10000'")


def _bound(arguments: list[str]) -> dict[str, str]:
    """Returns the bindings in arguments, by names without modules."""
    pairs = (text.removeprefix("--gin.").split("=", 1) for text in arguments if text.startswith("--gin."))
    return {name.strip(): value.strip() for name, value in pairs}


def _printed(lines: list[str]) -> dict[str, dict[str, str]]:
    """Returns the bindings of each job in a dry run, by the jobs' names without their stamps."""
    jobs: dict[str, list[str]] = {}
    for line in lines:
        if ": v3-8: 4 chips" in line:
            current = jobs.setdefault(line.partition("-20")[0], [])
        elif line.startswith("  --gin."):
            current.append(line.strip())
    return {name: _bound(arguments) for name, arguments in jobs.items()}


TESTS = """
import pytest

pytestmark = pytest.mark.tpu(accelerator_type="TPU_V3", accelerator_count=8, full_size=True)

def test_fits(t5x_run):
    t5x_run("sums.gin")

def test_does_not(t5x_run):
    ordinary = [f"{each}_eval/utils.DatasetConfig.batch_size = 32" for each in ("train", "infer")]
    t5x_run("sums.gin", bindings=["BATCH_SIZE = 4_194_304", *ordinary])
"""


@pytest.mark.journey
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
def test_what_does_not_fit_by_aot_is_not_sent(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_jobs=TESTS)
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


def test_the_verdict_has_peak_headroom_what_is_needed_beside_them_and_cost() -> None:
    numbers = {"fits": 1, "hbm_peak": 2**31, "hbm_needed": 2**31, "hbm_headroom": 2**30, "hbm_usable": 3 * 2**30}
    cost = {"chip_hours_at_least": 12.34, "usd_at_least": 27.148}
    more = {**numbers, "hbm_needed": 5 * 2**29, "hbm_headroom": 2**29}
    of = {"train": {**numbers, **cost}, "predict": {"fits": 0}, "score": more}
    measures = tuple(Measure(name, value, of=program) for program in of for name, value in of[program].items())
    assert [*verdicts(StageResult(Stage.AOT, Outcome.FAILED, measures=measures))] == [
        "train fits, peak 2 GiB, headroom 1 GiB of 3 GiB, at least 12.3 chip-hours, 27.15 USD by the list",
        "predict does not fit",
        "score fits, peak 2 GiB, needs 2.5 GiB, headroom 512 MiB of 3 GiB",
    ]
