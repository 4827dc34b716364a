"""What a job ran on, out of what T5X and JAX say in its log."""

from __future__ import annotations

import pytest

from t5x_harness.vertex.logs import LoggedDevices, RanOn

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
    assert read(NO_LIBTPU).about(tpu=False, emulated=False) == "not named in its log"  # there may be GPUs


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
