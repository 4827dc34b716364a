"""What ``t5x-harness submit`` says at a job's end of what it ran on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from t5x_harness.commands.submit_output import end_as_text, end_as_values
from t5x_harness.variables import ROOT_VARIABLE
from t5x_harness.vertex.launching import LaunchedJob, RunEnd
from t5x_harness.vertex.logs import UNKNOWN, RanOn
from t5x_harness.vertex.machine import Machine
from t5x_harness.vertex.metrics import RunMetrics
from t5x_harness.vertex.submitted import JobOutcome

CPU = RanOn(platform="cpu", platform_set=False, reason="libtpu is not installed")
WARNING = [
    "  warning: it ran on the CPU, and on no TPU: JAX in the job run-1 found none on cloud-tpu, 8 TPU_V3 cores, and "
    "fell back to the CPU: libtpu is not installed",
    "    fix: the image needs jax[tpu], with its libtpu: t5x-harness doctor --image, run inside it, says what is wrong",
]


@pytest.fixture(autouse=True)
def google(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are redirected to Google's own Vertex AI."""
    for name in (ROOT_VARIABLE, "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)


def lines(ran_on: RanOn, machine: str = "v3-8") -> list[str]:
    """Of the end of a job; those before it are of its name, its state and its folder."""
    submitted = SimpleNamespace(
        name="projects/1/locations/us-central1/customJobs/2",
        display_name="run-1",
        url="https://console/2",
        machine=Machine.parse(machine),
    )
    launched = SimpleNamespace(submitted=submitted, model_dir="gs://b/model", tracked=None, notes=())
    end = RunEnd(JobOutcome("JOB_STATE_SUCCEEDED"), RunMetrics({}), ran_on=ran_on)
    shown = list(end_as_text(cast(LaunchedJob, launched), end))
    values = end_as_values(cast(LaunchedJob, launched), end)
    assert shown[:3] == ["run-1: succeeded", f"  {submitted.name}", "  wrote to: gs://b/model"]
    assert shown[3] == f"  devices: {values['devices']}"
    return shown[3:]


def test_a_job_that_ran_on_the_cpu_beside_its_tpu_is_warned_about() -> None:
    assert lines(CPU) == ["  devices: the CPU: nothing ran on the TPU, as JAX found no TPU", *WARNING]


def test_what_ran_where_it_was_to_run_is_only_said() -> None:
    assert lines(RanOn("8 x TPU", "tpu")) == ["  devices: 8 x TPU"]
    assert lines(CPU, "machine-type=n1-standard-8") == ["  devices: not named in its log"]
    assert lines(UNKNOWN) == ["  devices: not named in its log"]


def test_the_emulated_vertex_ai_has_no_tpu_to_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, "/somewhere")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    assert lines(CPU) == ["  devices: the CPU: the emulated Vertex AI has no TPU"]
