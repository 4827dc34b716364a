"""The devices that a promoted test's job ran on are reported, as far as is known, and the CPU beside a TPU fails it."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

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
    "--t5x-tpu-max-chip-hours=100",
]


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


def properties(file: Path) -> dict[str, dict[str, str]]:
    """The properties of each test in a file of JUnit's format."""
    return {
        case.get("name", ""): {p.get("name", ""): p.get("value", "") for p in case.iter("property")}
        for case in ElementTree.parse(file).iter("testcase")
    }


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


@pytest.mark.journey
def test_a_real_job_that_fell_back_to_the_cpu_is_no_green(
    run: Run, fake_gcs: FakeGcs, pytester: pytest.Pytester
) -> None:
    fake_gcs.bucket("my-bucket")
    result = run(TEST, *REAL, "--t5x-vertex-image=repo/tells-devices:1", "--junitxml=there.xml")
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

USES = f"""{HEAD}
def test_uses():
    import jax
    assert jax.device_count() == 8

def test_uses_none():
    pass
"""


@pytest.mark.journey
def test_an_emulated_job_says_what_it_ran_on(run: Run, pytester: pytest.Pytester) -> None:
    result = run(USES, "--t5x-vertex=emulated", "--junitxml=there.xml")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "*- Vertex AI job -*",
            "test-uses-*: succeeded",
            "devices: 8 x cpu: the emulated Vertex AI has no TPU",
            "versions: python 3.*, t5x-harness *, pytest *, jax *",
            "test-uses-none-*: succeeded",
            "devices: not looked at: the test imported no JAX",
        ]
    )
    uses = properties(pytester.path / "there.xml")["test_uses"]
    assert uses["t5x.devices"] == "8 x cpu: the emulated Vertex AI has no TPU"
    assert uses["t5x.versions"].startswith("python 3.")


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
    result = run(FALLS_BACK, *REAL, "--t5x-vertex-image=repo/t5x:1")
    result.assert_outcomes(passed=1, failed=3)
    why = "it ran on * x cpu, and on no TPU: JAX in the job test-*found none on cloud-tpu, 8 TPU_V3 cores, and fell *"
    result.stdout.fnmatch_lines(
        [
            f"test_falls_back: {why}",
            "    fix: the image needs jax[[]tpu[]], with its libtpu: t5x-harness doctor --image, run inside it, *",
            "devices: * x cpu: nothing ran on the TPU, as JAX found no TPU",
            f"test_skips: {why}",
            "E *assert 'cpu' == 'tpu'",  # a failure of its own says more
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
    result = run(WARNS, "--t5x-vertex=emulated", *distributed)
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*= warnings summary =*",
            "test_there.py::test_warns",
            "  *test_there.py:*: FutureWarning: this goes away",
            '    warnings.warn("this goes away", FutureWarning)',
        ]
    )
