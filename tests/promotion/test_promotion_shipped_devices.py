"""What a shipped test ran on is told with it, and the CPU beside a TPU is not a green; so is what it warned of."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

from t5x_harness.google.gcs import FakeGcs
from t5x_harness.google.vertex_admin import FakeVertex

Run = Callable[..., pytest.RunResult]

HEAD = """
import os
import warnings

import pytest

pytestmark = pytest.mark.tpu(accelerator_type="TPU_V3", accelerator_count=8, ship=True)
"""
REAL = [
    "--t5x-vertex=real",  # the user's word for it: the clients find the same emulated Google Cloud
    "--t5x-vertex-project=mine",
    "--t5x-vertex-location=us-central1",
    "--t5x-vertex-bucket=my-bucket",
    "--t5x-vertex-image=repo/t5x:1",
    "--t5x-tpu-max-chip-hours=100",
]


@pytest.fixture
def run(vertex: FakeVertex, pytester: pytest.Pytester, imported: None, run_pytest: Run) -> Run:
    """Runs pytest, which uses the test's own Vertex AI."""

    def call(source: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(test_there=HEAD + source)
        return run_pytest("-m", "tpu", "--t5x-runtime=embedded", *arguments)

    return call


USES = """
def test_uses():
    import jax
    assert jax.device_count() == 8

def test_uses_none():
    pass
"""


@pytest.mark.journey
def test_an_emulated_job_says_what_it_ran_on(run: Run, pytester: pytest.Pytester) -> None:
    result = run(USES, "--t5x-vertex=emulated", "--junitxml=there.xml", "-rP")
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
    cases = {case.get("name"): case for case in ElementTree.parse(pytester.path / "there.xml").iter("testcase")}
    properties = {p.get("name"): p.get("value") for p in cases["test_uses"].iter("property")}
    assert properties["t5x.devices"] == "8 x cpu: the emulated Vertex AI has no TPU"
    assert (properties["t5x.versions"] or "").startswith("python 3.")


FALLS_BACK = """
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
def test_a_real_job_that_fell_back_to_the_cpu_is_no_green(run: Run, fake_gcs: FakeGcs) -> None:
    fake_gcs.bucket("my-bucket")
    result = run(FALLS_BACK, *REAL, "-rP")
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
    result.stdout.no_fnmatch_line("*Traceback*")


WARNS = """
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
