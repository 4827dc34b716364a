"""The moment with the most memory in use at the full depth need not be that with the most at few layers."""

from __future__ import annotations

from t5x_harness.aot.buffers import Allocation, BufferAssignment, PlacedValue
from t5x_harness.aot.depth import highest, moments_of
from t5x_harness.aot.program_text import parse_program

STEP = "jit(train_step)/jvp(T)/T.decode"


def sequence(*names: str) -> tuple[str, ...]:
    """Returns a program's text, with an instruction for each of JAX's names."""
    lines = [f'  %i{n} = f32[] negate(%p), metadata={{op_name="{name}"}}' for n, name in enumerate(names)]
    return ("HloModule m", "", "ENTRY %main (p: f32[]) -> f32[] {", "  %p = f32[] parameter(0)", *lines, "}")


def assigned(*live: int) -> BufferAssignment:
    """Returns what is live at each instruction."""
    values = tuple(PlacedValue(f"v{n}", (), size, n << 10, "f32[]", n, n) for n, size in enumerate(live))
    return BufferAssignment(
        (Allocation(1 << 20, 0, "preallocated-temp", None, values),),
        tuple(f"i{n}" for n in range(len(live))),
    )


def test_layers_are_known_from_the_end_that_is_nearer() -> None:
    layers = [f"{STEP}/decoder/layers_{layer}/mlp/wo/dot_general" for layer in range(6)]
    found = moments_of(parse_program(sequence(*layers, "jit(train_step)/add")), assigned(1, 2, 3, 4, 5, 6, 7))
    assert {name.removeprefix(STEP): moment for name, moment in found.items()} == {
        "/decoder/layers_0/mlp/wo/dot_general": 0,
        "/decoder/layers_-1/mlp/wo/dot_general": 5,
        "jit(train_step)/add": 6,
    }


def test_of_equal_names_that_with_the_most_counts() -> None:
    names = [f"{STEP}/decoder/logits_dense/dot_general"] * 3
    assert list(moments_of(parse_program(sequence(*names)), assigned(5, 9, 7)).values()) == [1]


def test_a_moment_that_grows_faster_overtakes() -> None:
    four, eight = {"encoder": 200, "logits": 150}, {"encoder": 240, "logits": 230}
    assert highest([four, eight], [-1.0, 2.0]) == "logits"
    assert highest([four, eight], [0.5, 0.5]) == "encoder"


def test_moments_far_below_the_peak_tell_nothing() -> None:
    assert highest([{"peak": 200, "update": 10}, {"peak": 240, "update": 230}], [-4.0, 5.0]) == "peak"
    assert highest([{"peak": 200}, {"other": 200}], [-1.0, 2.0]) is None
