"""What a promoted T5X job ran on is told with it, as far as its log says, and the CPU beside a TPU is not a green."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

from t5x_harness.google.gcs import FakeGcs
from t5x_harness.google.vertex_admin import FakeVertex
from t5x_harness.sample_tasks import CONFIGS

Run = Callable[..., pytest.RunResult]

REAL = [
    "--t5x-vertex=real",  # the user's word for it: the clients find the same emulated Google Cloud
    "--t5x-vertex-project=mine",
    "--t5x-vertex-location=us-central1",
    "--t5x-vertex-bucket=my-bucket",
    "--t5x-vertex-image=repo/tells-devices:1",
    "--t5x-tpu-max-chip-hours=100",
]
TEST = """
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


@pytest.fixture
def run(
    vertex: FakeVertex, pytester: pytest.Pytester, imported: None, monkeypatch: pytest.MonkeyPatch, run_pytest: Run
) -> Run:
    """Runs pytest on a project with a config, which uses the test's own Vertex AI."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    shutil.copytree(CONFIGS / "models", pytester.path / "models")
    shutil.copy(CONFIGS / "pretrain_span_corruption.gin", pytester.path / "pretrain.gin")

    def call(source: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(test_there=source)
        result = run_pytest("-m", "tpu", "--t5x-runtime=embedded", "-rP", "-v", *arguments)
        result.stdout.no_fnmatch_line("*Traceback*")
        return result

    return call


@pytest.mark.journey
def test_a_real_job_that_fell_back_to_the_cpu_is_no_green(
    run: Run, fake_gcs: FakeGcs, pytester: pytest.Pytester
) -> None:
    fake_gcs.bucket("my-bucket")
    result = run(TEST, *REAL, "--junitxml=there.xml")
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
    cases = {case.get("name"): case for case in ElementTree.parse(pytester.path / "there.xml").iter("testcase")}
    devices = {
        name: [p.get("value") for p in case.iter("property") if p.get("name") == "t5x.devices"]
        for name, case in cases.items()
    }
    assert devices == {
        "test_on_tpu": ["8 x TPU"],
        "test_without_libtpu": ["the CPU: nothing ran on the TPU, as JAX found no TPU"],
        "test_silent": ["not named in its log"],
    }
