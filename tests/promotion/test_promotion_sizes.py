"""``steps`` and ``full_size`` of the marker: what the job that comes of them binds, trains and leaves behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from t5x_harness.google.vertex_admin import FakeVertex
from t5x_harness.sample_tasks import CONFIGS

Run = Callable[..., pytest.RunResult]

MACHINE = 'accelerator_type = "TPU_V3"\naccelerator_count = 8\n'
HEAD = """
import pytest

pytestmark = pytest.mark.tpu(accelerator_type="TPU_V3", accelerator_count=8)
"""
TESTS = """
@pytest.mark.tpu(steps=3, full_size=True)
def test_its_own_sizes(t5x_run):
    result = t5x_run("sums.gin")
    assert [checkpoint.step for checkpoint in result.checkpoints] == [10_000, 10_003]
    assert result.steps == max(result.metrics["train/loss"]) == 10_003
    assert min(result.metrics["train/loss"]) >= 10_001
    assert all(checkpoint.path.endswith(f"/checkpoint_{checkpoint.step}") for checkpoint in result.checkpoints)
    for line in ("TRAIN_STEPS = 10003", "BATCH_SIZE = 16", "num_encoder_layers = 2", "eval_period = 500"):
        assert line in result.operative_config
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
"""


@pytest.fixture
def run(pytester: pytest.Pytester, imported: None, monkeypatch: pytest.MonkeyPatch, run_pytest: Run) -> Run:
    """Runs pytest on a project with a config and tests, promoted to an emulated Vertex AI."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    shutil.copytree(CONFIGS / "models", pytester.path / "models")
    shutil.copy(CONFIGS / "finetune_sums.gin", pytester.path / "sums.gin")

    def call(*arguments: str) -> pytest.RunResult:
        return run_pytest("-m", "tpu", "--t5x-vertex=emulated", "--t5x-runtime=embedded", *arguments)

    return call


def test_a_job_at_its_configs_sizes_trains_exactly_the_steps_of_its_marker(
    run: Run, vertex: FakeVertex, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(test_sizes=HEAD + TESTS)
    run("test_sizes.py").assert_outcomes(passed=1)
    bound = {job.display_name.partition("-2")[0]: _bound(_arguments(job.resource)) for job in vertex.jobs()}
    assert bound["test-its-own-sizes"].keys() == {"MODEL_DIR", "INITIAL_CHECKPOINT_PATH", "TRAIN_STEPS"}
    assert bound["test-its-own-sizes"]["INITIAL_CHECKPOINT_PATH"].endswith("/checkpoint_10000'")


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


def test_without_steps_a_shrunken_job_trains_few_and_another_those_of_its_config(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(test_orders=HEAD + ORDERS)
    result = run("test_orders.py", "--t5x-tpu-dry-run", "-k", "default or full_size")
    result.assert_outcomes(skipped=2)
    bound = _printed(result.stdout.lines)
    assert bound["test-default"]["TRAIN_STEPS"] == "10004"
    assert bound["test-full-size"].keys() == {"MODEL_DIR", "INITIAL_CHECKPOINT_PATH"}


def test_a_shipped_test_of_a_project_with_steps_runs_as_it_is_written(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_sizes=HEAD + "\n@pytest.mark.tpu(ship=True)\ndef test_there():\n    pass\n")
    pytester.makepyprojecttoml(f"[tool.t5x_harness.tpu]\n{MACHINE}steps = 5\nfull_size = true\n")
    result = run("test_sizes.py", "--t5x-tpu-dry-run")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["arguments:", "  t5x_harness.promotion.inside", "  test_sizes.py::test_there"])


def _arguments(resource: object) -> list[str]:
    """The arguments of a CustomJob's first container."""
    assert isinstance(resource, dict)
    found = resource["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["args"]
    return [str(argument) for argument in found]


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
