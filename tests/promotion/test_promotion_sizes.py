"""``steps`` and ``full_size`` of the marker: what the job that comes of them binds."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from t5x_harness.sample_tasks import CONFIGS

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
def run(pytester: pytest.Pytester, imported: None, monkeypatch: pytest.MonkeyPatch, run_pytest: Run) -> Run:
    """Runs pytest on a project with a config and tests, which promotes them to an emulated Vertex AI."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    shutil.copytree(CONFIGS / "models", pytester.path / "models")
    shutil.copy(CONFIGS / "finetune_sums.gin", pytester.path / "sums.gin")

    def call(*arguments: str) -> pytest.RunResult:
        return run_pytest("-m", "tpu", "--t5x-vertex=emulated", "--t5x-runtime=embedded", *arguments)

    return call


@pytest.mark.journey
def test_what_a_job_would_bind(run: Run, pytester: pytest.Pytester) -> None:
    """Also for a config without a marker, by the project's table, and with full_size of the call, which says more."""
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


def test_a_shipped_test_of_a_project_with_steps_runs_as_it_is_written(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_sizes=HEAD + "\n@pytest.mark.tpu(ship=True)\ndef test_there():\n    pass\n")
    pytester.makepyprojecttoml(f"[tool.t5x_harness.tpu]\n{MACHINE}steps = 5\nfull_size = true\n")
    result = run("test_sizes.py", "--t5x-tpu-dry-run")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["arguments:", "  t5x_harness.promotion.inside", "  test_sizes.py::test_there"])


def _bound(arguments: list[str]) -> dict[str, str]:
    """What arguments bind, by the names without modules."""
    pairs = (text.removeprefix("--gin.").split("=", 1) for text in arguments if text.startswith("--gin."))
    return {name.strip(): value.strip() for name, value in pairs}


def _printed(lines: list[str]) -> dict[str, dict[str, str]]:
    """What each job of a dry run binds, by the names of jobs without their stamps."""
    jobs: dict[str, list[str]] = {}
    for line in lines:
        if ": v3-8: 4 chips" in line:
            current = jobs.setdefault(line.partition("-20")[0], [])
        elif line.startswith("  --gin."):
            current.append(line.strip())
    return {name: _bound(arguments) for name, arguments in jobs.items()}
