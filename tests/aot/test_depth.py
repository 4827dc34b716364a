"""Straight lines through a few depths yield the full depth, and the moment with the most memory in use there."""

import pytest

from t5x_harness.aot.account import account_of
from t5x_harness.aot.buffers import Allocation, BufferAssignment, PlacedValue
from t5x_harness.aot.compiling import CompiledProgram
from t5x_harness.aot.costs import Collective, DeviceCosts, ProductSize
from t5x_harness.aot.depth import at_full_depth, depths_of, highest, moments_of
from t5x_harness.aot.libtpu import CompilerResult, CompilerVerdict
from t5x_harness.aot.memory import Buffer, DeviceMemory, MemoryKind, PaddedSize
from t5x_harness.aot.program_text import parse_program
from t5x_harness.aot.request import LoweredProgram, ProgramSpec

ENCODER, DECODER = "network.T5Config.num_encoder_layers", "network.T5Config.num_decoder_layers"
STEP = ProgramSpec("train", "train_dataset_cfg", "", {"encoder_input_tokens": (8, 16)}, {})


def stacks(encoder: int, decoder: int) -> dict[str, int]:
    return {ENCODER: encoder, DECODER: decoder}


@pytest.mark.parametrize(
    ("given", "depths"),
    [
        pytest.param(stacks(12, 12), [stacks(2, 2), stacks(6, 6)], id="equal"),
        pytest.param(stacks(24, 12), [stacks(2, 2), stacks(6, 2), stacks(2, 6)], id="different"),
        pytest.param(stacks(8, 36), [stacks(2, 2), stacks(6, 2), stacks(2, 6)], id="deeper-decoder"),
        pytest.param(stacks(24, 6), [stacks(2, 6), stacks(6, 6)], id="one-of-few-layers"),
    ],
)
def test_what_grows_with_each_stack_is_found_at_the_full_depth(
    given: dict[str, int], depths: list[dict[str, int]]
) -> None:
    found, weights = depths_of(given)
    assert found == depths
    values = [100 + 7 * depth[ENCODER] + 11 * depth[DECODER] for depth in depths]
    assert at_full_depth(values, weights) == 100 + 7 * given[ENCODER] + 11 * given[DECODER]


@pytest.mark.parametrize("shallow", [stacks(4, 6), stacks(1, 1), {}])
def test_shallow_models_are_compiled_with_all_layers(shallow: dict[str, int]) -> None:
    assert depths_of(shallow) == ([], [1.0])


def compiled(layers: int, *, kept: bool = False) -> CompiledProgram:
    state = Buffer(MemoryKind.PARAMETERS, "encoder/layers_*/mlp", "", (4, 8), "f32", layers, 1024 * layers, 0)
    logits = Buffer(MemoryKind.TEMPORARIES, "decoder/logits_dense", "dot_general", (8, 32), "f32", 1, 4096, 1024)
    memory = DeviceMemory(
        peak_bytes=5000 + 1024 * layers,
        reserved_bytes=6000 + 1024 * layers,
        kinds={MemoryKind.PARAMETERS: 1024 * layers, MemoryKind.TEMPORARIES: 5000},
        buffers=(logits, state),
        padding=(PaddedSize(500, 512, 3, 3000), PaddedSize(114, 120, layers, 900 * layers)),
    )
    costs = DeviceCosts(
        flops=100 * layers,
        product_flops=90 * layers,
        hbm_bytes=10,
        collectives=(Collective("all-reduce", "data", 3 * layers, 64 * layers, 32 * layers),),
        loops_of_most=(),
        loops_of_unknown_length=(),
        products=20 + 5 * layers,
        product_sizes=(ProductSize(512, (64, 32128), 1, 1000), ProductSize(64, (512, 512), layers, 90 * layers)),
    )
    return CompiledProgram(
        LoweredProgram("f", 10, {"data": 8}, 1024 * layers),
        CompilerResult(CompilerVerdict.COMPILED, "", 3.0, 1000, 50 * layers),
        memory,
        costs,
        is_kept=kept,
    )


def test_an_account_is_that_of_the_full_depth() -> None:
    account = account_of(STEP, [compiled(2), compiled(6)], depths_of(stacks(12, 12))[1])
    assert account.is_extrapolated
    assert account.memory.peak_bytes == 5000 + 12 * 1024
    assert account.memory.kinds[MemoryKind.PARAMETERS] == 12 * 1024
    assert account.needed_bytes == 6000 + 12 * 1024 + 600
    largest = account.memory.buffers[0]
    assert (largest.module, largest.count, largest.bytes) == ("encoder/layers_*/mlp", 12, 12 * 1024)
    assert account.memory.buffers[1].bytes == 4096
    assert account.memory.padding == (PaddedSize(114, 120, 12, 10800), PaddedSize(500, 512, 3, 3000))
    assert (account.costs.flops, account.costs.products) == (1200, 80)
    assert account.costs.product_sizes == (
        ProductSize(64, (512, 512), 12, 1080),
        ProductSize(512, (64, 32128), 1, 1000),
    )
    assert account.costs.collectives == (Collective("all-reduce", "data", 36, 64 * 12, 32 * 12),)
    assert (account.cpu_seconds, account.host_bytes) == (6.0, 1000)


def test_what_an_earlier_run_compiled_took_no_time() -> None:
    assert account_of(STEP, [compiled(2, kept=True)], [1.0]).cpu_seconds == 0


JITTED = "jit(train_step)/jvp(T)/T.decode"


def sequence(*names: str) -> tuple[str, ...]:
    """Returns a program's text, with an instruction for each of JAX's names."""
    lines = [f'  %i{n} = f32[] negate(%p), metadata={{op_name="{name}"}}' for n, name in enumerate(names)]
    return ("HloModule m", "", "ENTRY %main (p: f32[]) -> f32[] {", "  %p = f32[] parameter(0)", *lines, "}")


def assigned(*live: int) -> BufferAssignment:
    """Returns the live bytes at each instruction."""
    values = tuple(PlacedValue(f"v{n}", (), size, n << 10, "f32[]", n, n) for n, size in enumerate(live))
    return BufferAssignment(
        (Allocation(1 << 20, 0, "preallocated-temp", None, values),),
        tuple(f"i{n}" for n in range(len(live))),
    )


def test_layers_are_known_from_the_end_that_is_nearer() -> None:
    layers = [f"{JITTED}/decoder/layers_{layer}/mlp/wo/dot_general" for layer in range(6)]
    found = moments_of(parse_program(sequence(*layers, "jit(train_step)/add")), assigned(1, 2, 3, 4, 5, 6, 7))
    assert {name.removeprefix(JITTED): moment for name, moment in found.items()} == {
        "/decoder/layers_0/mlp/wo/dot_general": 0,
        "/decoder/layers_-1/mlp/wo/dot_general": 5,
        "jit(train_step)/add": 6,
    }


def test_of_equal_names_that_with_the_most_counts() -> None:
    names = [f"{JITTED}/decoder/logits_dense/dot_general"] * 3
    assert list(moments_of(parse_program(sequence(*names)), assigned(5, 9, 7)).values()) == [1]


def test_a_moment_that_grows_faster_overtakes() -> None:
    four, eight = {"encoder": 200, "logits": 150}, {"encoder": 240, "logits": 230}
    assert highest([four, eight], [-1.0, 2.0]) == "logits"
    assert highest([four, eight], [0.5, 0.5]) == "encoder"


def test_moments_far_below_the_peak_tell_nothing() -> None:
    assert highest([{"peak": 200, "update": 10}, {"peak": 240, "update": 230}], [-4.0, 5.0]) == "peak"
    assert highest([{"peak": 200}, {"other": 200}], [-1.0, 2.0]) is None
