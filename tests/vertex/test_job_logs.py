"""A job's log is read from where reading stopped, and names the job's devices, which submit reports at the end."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from t5x_harness.commands.submit_output import end_as_text, end_as_values
from t5x_harness.variables import ROOT_VARIABLE
from t5x_harness.vertex.launching import LaunchedJob, RunEnd
from t5x_harness.vertex.logs import UNKNOWN, LoggedDevices, LogReader, RanOn
from t5x_harness.vertex.machine import Machine
from t5x_harness.vertex.metrics import RunMetrics
from t5x_harness.vertex.submitted import JobOutcome


def _entry(name: str, second: int, **payload: Any) -> dict[str, Any]:
    return {
        "insertId": name,
        "timestamp": f"2026-01-02T03:04:{second:02}Z",
        "severity": "INFO",
        "resource": {"labels": {"task_name": "workerpool0-0"}},
        **payload,
    }


class _Reader(LogReader):
    """Reads from a list, two entries per page; all pages of one request have the same filter."""

    def __init__(self, late: timedelta = timedelta(minutes=1)) -> None:
        super().__init__("my-project", "123", late)
        self.entries: list[dict[str, Any]] = []
        self._paged = ""

    def _ask(self, wanted: str, token: str) -> Mapping[str, Any]:
        assert not token or wanted == self._paged
        self._paged = wanted
        since = wanted.partition('timestamp>="')[2].rstrip('"')
        read = datetime.fromisoformat
        there = [e for e in self.entries if not since or read(e["timestamp"]) >= read(since)]
        end = int(token or 0) + 2
        return {"entries": there[end - 2 : end], **({"nextPageToken": str(end)} if end < len(there) else {})}


def test_each_entry_is_read_once_also_those_of_one_moment() -> None:
    reader = _Reader()
    reader.entries = [_entry("a", 1, textPayload="one\n"), _entry("b", 2, textPayload="two")]
    assert [str(line) for line in reader.new_lines()] == ["workerpool0-0: one", "workerpool0-0: two"]
    assert reader.new_lines() == []
    reader.entries += [_entry("c", 2, textPayload="three"), _entry("d", 3, jsonPayload={"message": "four"})]
    assert [line.text for line in reader.new_lines()] == ["three", "four"]


def test_what_comes_in_late_is_read_too() -> None:
    reader = _Reader()
    reader.entries = [_entry("b", 50, textPayload="later")]
    reader.new_lines()
    reader.entries = [_entry("a", 10, textPayload="late"), *reader.entries]
    assert [line.text for line in reader.new_lines()] == ["late"]
    reader.entries += [_entry("c", 59, textPayload="last")]
    assert [line.text for line in reader.new_lines()] == ["last"]


def test_all_pages_are_read() -> None:
    reader = _Reader()
    reader.entries = [_entry(str(n), n, textPayload=str(n)) for n in range(7)]
    assert [line.text for line in reader.new_lines()] == [str(n) for n in range(7)]


def test_no_more_is_asked_for_again_than_what_may_come_in_late() -> None:
    reader = _Reader(late=timedelta(seconds=2))
    reader.entries = [_entry("b", 50, textPayload="newest")]
    reader.new_lines()
    reader.entries = [_entry("a", 10, textPayload="too late"), _entry("c", 48, textPayload="late"), *reader.entries]
    assert [line.text for line in reader.new_lines()] == ["late"]


@pytest.mark.parametrize(
    ("payload", "text"),
    [({"message": 5}, "5"), ({"message": ["x"]}, "['x']"), ({"loss": 0.5}, "{'loss': 0.5}"), ({}, ""), (None, "")],
)
def test_a_structured_payload_may_be_anything(payload: Any, text: str) -> None:
    reader = _Reader()
    reader.entries = [_entry("a", 1, **({} if payload is None else {"jsonPayload": payload}))]
    assert [line.text for line in reader.new_lines()] == [text]


HEAD = "I1122 07:58:04.897587 140352944569216 partitioning.py:257] "
TPU = f"{HEAD}global_mesh devices: [[TpuDevice(id=0, process_index=0, coords=(0,0,0), core_on_chip=0)"
TPU_SHAPE = f"{HEAD}global_mesh devices shape: (4, 2)"
SLICES = f"{HEAD}multi_slice_global_mesh devices: [[[TpuDevice(id=0, process_index=0, coords=(0,0,0), core_on_chip=0)"
CPU = f"{HEAD}global_mesh devices: [[CpuDevice(id=0)]"
NO_LIBTPU = "Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so: libtpu.so: cannot open shared"
PRESENT = (
    "A Google TPU may be present on this machine, but either a TPU-enabled jaxlib or libtpu is not installed. Falling "
    "back to cpu."
)
FORMER = "No GPU/TPU found, falling back to CPU."


def read(*lines: str) -> RanOn:
    logged = LoggedDevices()
    for line in lines:
        logged.read(line)
    return logged.ran_on


@pytest.mark.parametrize(
    ("lines", "devices", "platform", "told"),
    [
        ((TPU, TPU_SHAPE), "8 x TPU", "tpu", None),
        ((SLICES, f"{HEAD}multi_slice_global_mesh devices shape: (2, 4, 1)"), "8 x TPU", "tpu", None),
        ((TPU,), "TPU", "tpu", None),
        ((NO_LIBTPU, TPU, TPU_SHAPE, TPU, TPU_SHAPE), "8 x TPU", "tpu", None),
        ((CPU, f"{HEAD}global_mesh devices shape: (8, 1)", TPU, TPU_SHAPE), "8 x TPU", "tpu", None),
        ((CPU, f"{HEAD}global_mesh devices shape: (8, 1)"), "8 x cpu", "cpu", None),
        ((f"{HEAD}global_mesh devices: [[CudaDevice(id=0)]",), "Cuda", "cuda", None),
        ((f"I1 xla_bridge.py:849] {NO_LIBTPU}",), "", "cpu", False),
        ((f"W1 xla_bridge.py:895] {PRESENT}",), "", "cpu", False),
        ((f"W1 {FORMER} (Set TF_CPP_MIN_LOG_LEVEL=0 and rerun for more info.)",), "", "cpu", False),
        ((NO_LIBTPU, f"{HEAD}global_mesh devices: [[CudaDevice(id=0)]"), "Cuda", "cuda", None),
        ((NO_LIBTPU, CPU, f"{HEAD}global_mesh devices shape: (8,)"), "8 x cpu", "cpu", False),
        (("The mesh has 8 devices, the first is VirtualTpuDevice(id=0, process_index=0)",), "8 x cpu", "cpu", None),
        (("The mesh has 8 devices, the first is TpuDevice(id=0, process_index=0)",), "8 x TPU", "tpu", None),
    ],
)
def test_what_the_log_says(lines: tuple[str, ...], devices: str, platform: str, told: bool | None) -> None:
    found = read(*lines)
    assert (found.devices, found.platform, found.platform_set) == (devices, platform, told)
    assert found.fell_back is (platform == "cpu")


@pytest.mark.parametrize(
    "line",
    [
        "Epoch 0 of 2",
        "Unable to initialize backend 'tpu_driver': NOT_FOUND: Unable to find driver in registry",
        "Unable to initialize backend 'cuda': no supported devices found for platform CUDA.",
        "An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is missing. Falling back to tpu.",
        "my_tokenizer: no fast kernel, falling back to cpu",
        "    NOTE = 'falling back to CPU'",
        f"{HEAD}global_mesh devices shape: (4, 2)",
    ],
)
def test_what_says_nothing_is_not_taken_for_an_answer(line: str) -> None:
    found = read(line)
    assert (found.platform, found.fell_back) == ("", False)
    assert found.about(tpu=True, emulated=False) == "not named in its log"


def test_the_words_for_it() -> None:
    assert read(TPU, TPU_SHAPE).about(tpu=True, emulated=False) == "8 x TPU"
    assert read(CPU).about(tpu=True, emulated=True) == "cpu: the emulated Vertex AI has no TPU"
    assert read(CPU).about(tpu=True, emulated=False) == "cpu: nothing ran on the TPU"
    assert read(CPU).about(tpu=False, emulated=False) == "cpu"
    assert read(PRESENT).about(tpu=True, emulated=False) == "the CPU: nothing ran on the TPU, as JAX found no TPU"
    assert read(NO_LIBTPU).about(tpu=False, emulated=False) == "not named in its log"  # the machine may have GPUs


def test_what_is_wrong_without_a_tpu_is_as_much_as_is_known() -> None:
    message, fix = read(NO_LIBTPU).no_tpu("run-1", "cloud-tpu, 8 TPU_V3 cores")
    assert message == (
        "it ran on the CPU, and on no TPU: JAX in the job run-1 found none on cloud-tpu, 8 TPU_V3 cores, and fell back "
        f"to the CPU: {NO_LIBTPU}"
    )
    assert fix.startswith("the image needs jax[tpu], with its libtpu: t5x-harness doctor --image, run inside it, says ")
    message, fix = read(CPU).no_tpu("run-1", "cloud-tpu, 8 TPU_V3 cores")
    assert message == (
        "it ran on cpu, and on no TPU: T5X in the job run-1 made its mesh of the CPU of cloud-tpu, 8 TPU_V3 cores"
    )
    assert fix.startswith("remove what makes JAX use the CPU: JAX_PLATFORMS in the image, ")


NO_TPU = RanOn(platform="cpu", platform_set=False, reason="libtpu is not installed")
WARNING = [
    "  warning: it ran on the CPU, and on no TPU: JAX in the job run-1 found none on cloud-tpu, 8 TPU_V3 cores, and "
    "fell back to the CPU: libtpu is not installed",
    "    fix: the image needs jax[tpu], with its libtpu: t5x-harness doctor --image, run inside it, says what is wrong",
]


@pytest.fixture(autouse=True)
def google(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this process's clients use Google's own Vertex AI."""
    for name in (ROOT_VARIABLE, "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)


def lines(ran_on: RanOn, machine: str = "v3-8") -> list[str]:
    """Returns the lines about a job's end, without the first ones, which have its state, name and folder."""
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
    assert lines(NO_TPU) == ["  devices: the CPU: nothing ran on the TPU, as JAX found no TPU", *WARNING]


def test_what_ran_where_it_was_to_run_is_only_said() -> None:
    assert lines(RanOn("8 x TPU", "tpu")) == ["  devices: 8 x TPU"]
    assert lines(NO_TPU, "machine-type=n1-standard-8") == ["  devices: not named in its log"]
    assert lines(UNKNOWN) == ["  devices: not named in its log"]


def test_the_emulated_vertex_ai_has_no_tpu_to_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, "/somewhere")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    assert lines(NO_TPU) == ["  devices: the CPU: the emulated Vertex AI has no TPU"]
