"""Complete promoted runs with Google's SDK, and their devices: a run on the CPU of a TPU's host fails."""

import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from t5x_harness.google.gcs import FakeGcs
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
def run(vertex: FakeVertex, pytester: pytest.Pytester, promote: Run) -> Run:
    """Runs pytest on a project with configs and tests; it uses the Vertex AI of the test."""
    for name, sample in (
        ("infer", "infer_answer"),
        ("train", "finetune_answer"),
        ("pretrain", "pretrain_span_corruption"),
    ):
        shutil.copy(CONFIGS / f"{sample}.gin", pytester.path / f"{name}.gin")
    pytester.makepyprojecttoml('[tool.t5x_harness.tpu]\naccelerator_type = "TPU_V3"\naccelerator_count = 8\n')
    return promote


@pytest.mark.journey
def test_a_config_a_test_and_a_shipped_test_run_to_the_end(
    run: Run, vertex: FakeVertex, pytester: pytest.Pytester
) -> None:
    result = run(TEST, "infer.gin", "test_there.py", "-v", "-rP", "--junitxml=runs.xml", "--t5x-tpu-numerics")
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(
        [
            "infer.gin::infer PASSED*",
            "test_there.py::test_training PASSED*",
            "test_there.py::test_there PASSED*",
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
    found = properties(pytester.path / "runs.xml")
    for name, job in (("infer", "infer"), ("test_training", "test-training"), ("test_there", "test-there")):
        assert found[name]["t5x.job"] == jobs[job].name
        assert found[name]["t5x.devices"] == "8 x cpu: the emulated Vertex AI has no TPU"
        assert "t5x.job_url" not in found[name]
    result.stdout.fnmatch_lines(["*_ test_there _*", "versions: python 3.*, t5x-harness *, pytest *, jax *"])
    assert found["test_there"]["t5x.versions"].startswith("python 3.")


def test_configs_are_promoted_only_where_resources_are_named(run: Run, pytester: pytest.Pytester) -> None:
    run("", "infer.gin", "--collect-only", "-q").stdout.fnmatch_lines(["infer.gin::infer", "4 tests collected *"])
    (pytester.path / "pyproject.toml").unlink()
    result = run("", "infer.gin", "--collect-only", "-q")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.journey
def test_a_job_that_fails_is_the_runs_failure_with_its_log(run: Run, vertex: FakeVertex) -> None:
    vertex.internal("infer-*", times=None)
    result = run("", "infer.gin")
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


REAL = [
    "--t5x-vertex=real",  # only in name: the clients use the same emulated Google Cloud
    "--t5x-vertex-project=mine",
    "--t5x-vertex-location=us-central1",
    "--t5x-vertex-bucket=my-bucket",
    "--t5x-tpu-max-chip-hours=100",
]


def properties(file: Path) -> dict[str, dict[str, str]]:
    """Returns the properties of each test in a JUnit file."""
    return {
        case.get("name", ""): {p.get("name", ""): p.get("value", "") for p in case.iter("property")}
        for case in ElementTree.parse(file).iter("testcase")
    }


DEVICES = """
import pytest

pytestmark = pytest.mark.tpu(accelerator_type="TPU_V3", accelerator_count=8)

def test_on_tpu(t5x_run):
    t5x_run("pretrain.gin")

def test_without_libtpu(t5x_run):
    t5x_run("pretrain.gin")

def test_silent(t5x_run):
    [train] = [stage for stage in t5x_run("pretrain.gin").stages if stage.stage == "train"]
    assert "whether the job ran on its TPU: its log names no devices" in train.not_checked
"""


@pytest.mark.journey
def test_a_real_job_that_fell_back_to_the_cpu_is_no_green(
    run: Run, fake_gcs: FakeGcs, pytester: pytest.Pytester
) -> None:
    fake_gcs.bucket("my-bucket")
    result = run(DEVICES, "-rP", "-v", *REAL, "--t5x-vertex-image=repo/tells-devices:1", "--junitxml=there.xml")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*_ test_without_libtpu _*",
            "*error RUN11: it ran on the CPU, and on no TPU: JAX in the job*",
            "*fix: the image needs jax[[]tpu[]], with its libtpu: t5x-harness doctor --image*",
            "*- Vertex AI job -*",
            "devices: the CPU: nothing ran on the TPU, as JAX found no TPU",
        ]
    )
    result.stdout.fnmatch_lines(
        ["*_ test_on_tpu _*", "*- Vertex AI job -*", "projects/*: succeeded", "devices: 8 x TPU"]
    )
    result.stdout.fnmatch_lines(["*_ test_silent _*", "*- Vertex AI job -*", "devices: not named in its log"])
    assert {name: each["t5x.devices"] for name, each in properties(pytester.path / "there.xml").items()} == {
        "test_on_tpu": "8 x TPU",
        "test_without_libtpu": "the CPU: nothing ran on the TPU, as JAX found no TPU",
        "test_silent": "not named in its log",
    }


HEAD = """
import os
import warnings

import pytest

pytestmark = pytest.mark.tpu(accelerator_type="TPU_V3", accelerator_count=8, ship=True)
"""

FALLS_BACK = f"""{HEAD}
@pytest.fixture(autouse=True)
def without_tpu(request):
    if request.node.name != "test_means_the_cpu":
        os.environ.pop("JAX_PLATFORMS")

def test_falls_back():
    import jax
    jax.devices()

def test_skips():
    import jax
    if jax.default_backend() != "tpu":
        pytest.skip("needs a TPU")

def test_fails():
    import jax
    assert jax.default_backend() == "tpu"

def test_means_the_cpu():
    import jax
    jax.devices()
"""


@pytest.mark.journey
def test_a_shipped_test_that_fell_back_to_the_cpu_is_no_green(run: Run, fake_gcs: FakeGcs) -> None:
    fake_gcs.bucket("my-bucket")
    result = run(FALLS_BACK, "-rP", "-v", *REAL, "--t5x-vertex-image=repo/t5x:1")
    result.assert_outcomes(passed=1, failed=3)
    why = "it ran on * x cpu, and on no TPU: JAX in the job test-*found none on cloud-tpu, 8 TPU_V3 cores, and fell *"
    result.stdout.fnmatch_lines(
        [
            f"test_falls_back: {why}",
            "    fix: the image needs jax[[]tpu[]], with its libtpu: t5x-harness doctor --image, run inside it, *",
            "devices: * x cpu: nothing ran on the TPU, as JAX found no TPU",
            f"test_skips: {why}",
            "E *assert 'cpu' == 'tpu'",  # the test's own failure is more informative
            "devices: * x cpu: nothing ran on the TPU, as JAX found no TPU",
            "test-means-the-cpu-*: succeeded",
            "devices: * x cpu: nothing ran on the TPU, as JAX was set to take the CPU",
        ]
    )


WARNS = f"""{HEAD}
def test_warns():
    warnings.warn("this goes away", FutureWarning)
"""


@pytest.mark.journey
@pytest.mark.parametrize("distributed", [[], ["-n", "1"]], ids=["alone", "distributed"])
def test_what_it_warns_of_is_among_the_warnings_here(run: Run, distributed: list[str]) -> None:
    result = run(WARNS, "-rP", "-v", *distributed)
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*= warnings summary =*",
            "test_there.py::test_warns",
            "  *test_there.py:*: FutureWarning: this goes away",
            '    warnings.warn("this goes away", FutureWarning)',
        ]
    )
