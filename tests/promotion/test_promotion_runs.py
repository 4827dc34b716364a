"""Promoted runs, the whole way with Google's SDK: configs and tests with ``t5x_run`` become T5X jobs."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

from t5x_harness.google.vertex_admin import FakeVertex
from t5x_harness.sample_tasks import CONFIGS

Run = Callable[..., pytest.RunResult]

TEST = """
import pytest

@pytest.mark.smoke
@pytest.mark.tpu(accelerator_type="TPU_V3", accelerator_count=8, steps=6)
def test_training(t5x_run):
    result = t5x_run("train.gin")
    assert result.passed and result.steps == 10_006
    assert not result.spec.settings.tpu_numerics  # a TPU has its own
    assert sorted(result.metrics["train/loss"]) == list(range(10_001, 10_007))
    assert set(result.metrics["eval/inference_eval/sample_answer/eval/em"]) == {10_006}
    assert [checkpoint.step for checkpoint in result.checkpoints] == [10_000, 10_003, 10_006]
    assert all(checkpoint.num_bytes for checkpoint in result.checkpoints)
    assert "prediction" in result.predictions[0]
    assert "TRAIN_STEPS = 10006" in result.operative_config
    assert "{'inputs': 64, 'targets': 16}" in result.operative_config  # shrunk
    assert "Epoch" in open(result.log).read()
    assert result.timings["train"] > 0

@pytest.mark.tpu(accelerator_type="TPU_V3", accelerator_count=8, ship=True)
def test_there():
    import jax
    assert jax.device_count() == 8
"""


@pytest.fixture
def run(vertex: FakeVertex, pytester: pytest.Pytester, imported: None, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest on a project with configs and tests, which uses the test's own Vertex AI."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    shutil.copytree(CONFIGS / "models", pytester.path / "models")
    shutil.copy(CONFIGS / "infer_answer.gin", pytester.path / "infer.gin")
    shutil.copy(CONFIGS / "finetune_answer.gin", pytester.path / "train.gin")
    pytester.makepyfile(test_runs=TEST)
    pytester.makepyprojecttoml('[tool.t5x_harness.tpu]\naccelerator_type = "TPU_V3"\naccelerator_count = 8\n')

    def call(*arguments: str) -> pytest.RunResult:
        result = pytester.runpytest_subprocess(
            "-m", "tpu", "--t5x-vertex=emulated", "--t5x-runtime=embedded", *arguments
        )
        for text in (result.stdout, result.stderr):
            text.no_fnmatch_line("*Traceback*")
            text.no_fnmatch_line("*INTERNALERROR*")
        return result

    return call


@pytest.mark.journey
def test_a_config_a_test_and_a_shipped_test_run_to_the_end(
    run: Run, vertex: FakeVertex, pytester: pytest.Pytester
) -> None:
    result = run("infer.gin", "test_runs.py", "-v", "-rP", "--junitxml=runs.xml", "--t5x-tpu-numerics")
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(
        [
            "infer.gin::infer PASSED*",
            "test_runs.py::test_training PASSED*",
            "test_runs.py::test_there PASSED*",
            "infer * infer * ok * ok * ok * ok *",
            "train * train * ok * ok * ok * ok * ok * ok *",
        ]
    )
    for title in ("gin: infer::infer", "test_training", "test_there"):
        result.stdout.fnmatch_lines(
            [f"*_ {title} _*", "*- Vertex AI job -*", "devices: 8 x cpu: the emulated Vertex AI has no TPU"]
        )
    jobs = {job.display_name.partition("-2")[0]: job for job in vertex.jobs()}
    assert {name: job.state for name, job in jobs.items()} == dict.fromkeys(
        ("infer", "test-training", "test-there"), "JOB_STATE_SUCCEEDED"
    )
    arguments = jobs["test-training"].resource["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["args"]
    assert {
        "--run_mode=train",
        "--gin.TRAIN_STEPS=10006",
        "--gin.train.eval_period=3",
        "--gin.train.stats_period=1",
        "--gin.utils.SaveCheckpointConfig.period=3",
    } <= set(arguments)
    cases = {case.get("name"): case for case in ElementTree.parse(pytester.path / "runs.xml").iter("testcase")}
    for name, job in (("infer", "infer"), ("test_training", "test-training"), ("test_there", "test-there")):
        properties = {p.get("name"): p.get("value") for p in cases[name].iter("property")}
        assert properties["t5x.job"] == jobs[job].name
        assert properties["t5x.devices"] == "8 x cpu: the emulated Vertex AI has no TPU"
        assert "t5x.job_url" not in properties


def test_configs_are_promoted_only_where_resources_are_named(run: Run, pytester: pytest.Pytester) -> None:
    run("infer.gin", "--collect-only", "-q").stdout.fnmatch_lines(["infer.gin::infer", "4 tests collected *"])
    (pytester.path / "pyproject.toml").unlink()
    result = run("infer.gin", "--collect-only", "-q")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.journey
def test_a_job_that_fails_is_the_runs_failure_with_its_log(run: Run, vertex: FakeVertex) -> None:
    vertex.internal("infer-*", times=None)
    result = run("infer.gin")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*_ gin: infer::infer _*",
            "error RUN07: the job infer-* ended as failed: Internal error occurred for the",
            "    current attempt.",
            "    fix: run it again; if it recurs, check the image's packages: t5x-harness doctor --image in it",
            "*log of infer:",
            "  | service: Job failed.",
        ]
    )
