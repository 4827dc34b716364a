"""Operations, bytes and collectives of compiled programs, against the compiler's own figures and by hand."""

import json
from pathlib import Path

import pytest

from t5x_harness.aot.costs import Collective, ProductSize, axes_of, costs_of
from t5x_harness.aot.hlo import Groups
from t5x_harness.aot.program_text import parse_program, read_program

MESH = {"data": 4, "model": 2}
RECORDED = "tests/reference/aot"

LAYERS = """HloModule jit_step

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

%product (p: f32[8,16], q: f32[16,128]) -> f32[8,128] {
  %p = f32[8,16]{1,0:T(8,128)} parameter(0)
  %q = f32[16,128]{1,0:T(8,128)S(1)} parameter(1)
  %pq = f32[8,128]{1,0:T(8,128)} convolution(%p, %q), dim_labels=bf_io->bf
  ROOT %relu = f32[8,128]{1,0:T(8,128)} maximum(%pq, %pq)
}

%begin (s: f32[8,128]) -> f32[32,128] {
  %s = f32[8,128]{1,0:T(8,128)} parameter(0)
  ROOT %all.1 = f32[32,128]{1,0:T(8,128)} all-gather(%s), channel_id=7, replica_groups=[2,4]<=[4,2]T(1,0), dimensions={0}
}

%end (s.1: f32[8,128]) -> f32[32,128] {
  %s.1 = f32[8,128]{1,0:T(8,128)} parameter(0)
  ROOT %all.2 = f32[32,128]{1,0:T(8,128)} all-gather(%s.1), channel_id=7, replica_groups=[2,4]<=[4,2]T(1,0), dimensions={0}
}

%all-reduce-scatter.3 (s.2: f32[32,128]) -> f32[8,128] {
  %s.2 = f32[32,128]{1,0:T(8,128)} parameter(0)
  %zero.1 = s32[] constant(0)
  %reduced = f32[32,128]{1,0:T(8,128)} all-reduce(%s.2), channel_id=9, replica_groups=[2,4]<=[4,2]T(1,0), to_apply=%sum
  ROOT %part = f32[8,128]{1,0:T(8,128)} dynamic-slice(%reduced, %zero.1, %zero.1), dynamic_slice_sizes={8,128}
}

%body (carried: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {
  %carried = (s32[], f32[8,128]{1,0:T(8,128)}) parameter(0)
  %at = s32[] get-tuple-element(%carried), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%at, %one)
  %x = f32[8,128]{1,0:T(8,128)} get-tuple-element(%carried), index=1
  %sent = (f32[8,128]{1,0:T(8,128)}, f32[8,128]{1,0:T(8,128)}, u32[], u32[]) collective-permute-start(%x), channel_id=3, source_target_pairs={{0,2},{2,4},{4,6},{6,0},{1,3},{3,5},{5,7},{7,1}}
  %got = f32[8,128]{1,0:T(8,128)} collective-permute-done(%sent)
  ROOT %out = (s32[], f32[8,128]{1,0:T(8,128)}) tuple(%next, %got)
}

%test (carried.1: (s32[], f32[8,128])) -> pred[] {
  %carried.1 = (s32[], f32[8,128]{1,0:T(8,128)}) parameter(0)
  %at.1 = s32[] get-tuple-element(%carried.1), index=0
  %limit = s32[] LIMIT
  ROOT %less = pred[] compare(%at.1, %limit), direction=LT
}

ENTRY %main (l: f32[8,16], r: f32[16,128]) -> f32[8,128] {
  %l = f32[8,16]{1,0:T(8,128)} parameter(0)
  %r = f32[16,128]{1,0:T(8,128)S(1)} parameter(1)
  %fused = f32[8,128]{1,0:T(8,128)} fusion(%l, %r), kind=kOutput, calls=%product
  %zero = s32[] constant(0)
  %in = (s32[], f32[8,128]{1,0:T(8,128)}) tuple(%zero, %fused)
  %loop = (s32[], f32[8,128]{1,0:T(8,128)}) while(%in), condition=%test, body=%body
  %y = f32[8,128]{1,0:T(8,128)} get-tuple-element(%loop), index=1
  %first = f32[32,128]{1,0:T(8,128)} fusion(%y), kind=kCustom, calls=%begin
  %second = f32[32,128]{1,0:T(8,128)} fusion(%y), kind=kCustom, calls=%end
  %least = f32[8,128]{1,0:T(8,128)} fusion(%second), kind=kCustom, calls=%all-reduce-scatter.3
  ROOT %total = f32[8,128]{1,0:T(8,128)} all-reduce(%least), channel_id=8, replica_groups=[4,2]<=[8], to_apply=%sum
}
"""  # noqa: E501
TILE = 8 * 128 * 4


def test_costs_of_a_whole_step_are_the_compilers(repository: Path) -> None:
    facts = json.loads((repository / RECORDED / "facts.json").read_text())
    costs = costs_of(read_program(repository / RECORDED / "program.txt"), MESH)
    assert costs.flops == pytest.approx(facts["flops"], rel=0.002)
    assert costs.hbm_bytes == pytest.approx(facts["bytes accessed"], rel=0.002)
    # 1024 tokens on a device, two layers of 64 x 128 and half of 1000 logits; the first layer has no input gradient.
    per_token = 2 * (2 * 2 * 64 * 128 + 64 * 500)
    assert costs.product_flops == 1024 * (3 * per_token - 2 * 64 * 128)
    assert costs.products == 5 + 5 + 4 - 1  # forward, kernel gradients, input gradients; one fusion has two of them
    assert costs.loops_of_unknown_length == ()


def test_collectives_of_a_whole_step_have_kind_and_axis(repository: Path) -> None:
    costs = costs_of(read_program(repository / RECORDED / "program.txt"), MESH)
    activations, gradients, loss = costs.collectives
    # Each layer's output and input gradient, except the first layer's input gradient; the output is bfloat16[8,128,64].
    assert (activations.kind, activations.axis, activations.count) == ("all-reduce", "model", 4)
    assert (gradients.kind, gradients.axis, gradients.count) == ("all-reduce", "data", 2)
    assert gradients.bytes == 4 * 64 * 128 * 2 + 64 * 500 * 4
    assert gradients.sent_bytes == 2 * gradients.bytes * 3 // 4
    assert loss == Collective("all-reduce", "data+model", 1, 4, 6)


def test_loops_count_as_often_as_they_run() -> None:
    costs = costs_of(parse_program(LAYERS.replace("LIMIT", "constant(5)").splitlines()), MESH)
    assert costs.product_flops == 2 * 8 * 16 * 128
    assert costs.flops == costs.product_flops + 8 * 128 + 5 + 6  # a maximum, the counter's additions and comparisons
    assert costs.collectives == (
        Collective("collective-permute", "data", 5, 5 * TILE, 5 * TILE),
        Collective("all-gather", "data", 1, 4 * TILE, 3 * TILE),
        Collective("reduce-scatter", "data", 1, 4 * TILE, 3 * TILE),
        Collective("all-reduce", "model", 1, TILE, TILE),
    )


def test_a_loop_of_unknown_length_is_named_and_counts_as_often_as_is_said() -> None:
    program = parse_program(LAYERS.replace("LIMIT", "partition-id()").splitlines())
    for rounds in (1, 7):
        costs = costs_of(program, MESH, longest_loop=rounds)
        assert costs.loops_of_unknown_length == ("loop",)
        assert ("collective-permute", rounds) in [(found.kind, found.count) for found in costs.collectives]


def test_bytes_are_those_of_the_large_memory() -> None:
    costs = costs_of(parse_program(LAYERS.replace("LIMIT", "constant(5)").splitlines()), MESH)
    fused = 8 * 128 * 4 + TILE  # a tile for f32[8,16]; the other operand is in on-chip memory
    loop = 5 * (2 * TILE + 4 + 4 + 4) + 6 * (4 + 4 + 1)
    after = 2 * (TILE + 4 * TILE) + (4 * TILE + TILE) + 2 * TILE
    assert costs.hbm_bytes == fused + loop + after


SLICES = """HloModule jit_step

%update (p: f32[6,8,128], x: f32[1,8,128], i: s32[]) -> f32[6,8,128] {
  %p = f32[6,8,128]{2,1,0:T(8,128)} parameter(0)
  %x = f32[1,8,128]{2,1,0:T(8,128)} parameter(1)
  %i = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %u = f32[6,8,128]{2,1,0:T(8,128)} dynamic-update-slice(%p, %x, %i, %zero, %zero)
}

%layer (p.1: f32[6,8,128], i.1: s32[]) -> f32[1,8,128] {
  %p.1 = f32[6,8,128]{2,1,0:T(8,128)} parameter(0)
  %i.1 = s32[] parameter(1)
  %zero.1 = s32[] constant(0)
  ROOT %s = f32[1,8,128]{2,1,0:T(8,128)} dynamic-slice(%p.1, %i.1, %zero.1, %zero.1), dynamic_slice_sizes={1,8,128}
}

ENTRY %main (all: f32[6,8,128], at: s32[]) -> f32[6,8,128] {
  %all = f32[6,8,128]{2,1,0:T(8,128)} parameter(0)
  %at = s32[] parameter(1)
  %one = f32[1,8,128]{2,1,0:T(8,128)} fusion(%all, %at), kind=kLoop, calls=%layer
  ROOT %new = f32[6,8,128]{2,1,0:T(8,128)} fusion(%all, %one, %at), kind=kLoop, calls=%update
}
"""


def test_a_layer_of_a_stack_counts_alone() -> None:
    costs = costs_of(parse_program(SLICES.splitlines()), MESH)
    assert costs.hbm_bytes == (TILE + 4 + TILE) + (TILE + 4 + TILE)


def test_what_is_handed_on_or_only_allocated_is_no_traffic() -> None:
    text = """HloModule jit_step

%half (p: f32[8,128], q: f32[8,128]) -> (f32[8,128], f32[8,128]) {
  %p = f32[8,128]{1,0:T(8,128)} parameter(0)
  %q = f32[8,128]{1,0:T(8,128)} parameter(1)
  %n = f32[8,128]{1,0:T(8,128)} negate(%q)
  ROOT %t = (f32[8,128]{1,0:T(8,128)}, f32[8,128]{1,0:T(8,128)}) tuple(%p, %n)
}

ENTRY %main (x: f32[8,128]) -> (f32[8,128], f32[8,128]) {
  %x = f32[8,128]{1,0:T(8,128)} parameter(0)
  %room = f32[8,128]{1,0:T(8,128)} custom-call(), custom_call_target="AllocateBuffer"
  ROOT %f = (f32[8,128]{1,0:T(8,128)}, f32[8,128]{1,0:T(8,128)}) fusion(%room, %x), kind=kLoop, calls=%half
}
"""
    assert costs_of(parse_program(text.splitlines()), MESH).hbm_bytes == 2 * TILE


@pytest.mark.parametrize(
    ("window", "flops"),
    [
        ("dim_labels=0bf_0io->0bf, window={size=1}", 0),
        ("dim_labels=0bf_0io->0bf, window={size=4 stride=3 pad=3_3 lhs_dilate=4}", 4),
    ],
)
def test_products_of_batches_count_pairs_that_meet(window: str, flops: int) -> None:
    """The compiler writes a batch of products as one convolution, in which each example meets only its own kernel."""
    text = f"""HloModule jit_step

ENTRY %main (l: f32[4,2,3], r: f32[4,3,5]) -> f32[4,2,5] {{
  %l = f32[4,2,3]{{2,1,0}} parameter(0)
  %r = f32[4,3,5]{{2,1,0}} parameter(1)
  ROOT %o = f32[4,2,5]{{2,1,0}} convolution(%l, %r), {window}
}}
"""
    expected = 2 * (flops or 4) * 2 * 3 * 5
    costs = costs_of(parse_program(text.splitlines()), MESH)
    assert costs.product_flops == expected
    assert costs.product_sizes == (ProductSize(3, (8, 5), 1, expected),)


def test_a_dot_counts_what_it_contracts() -> None:
    text = """HloModule jit_step

ENTRY %main (l: f32[4,2,3], r: f32[4,3,5]) -> f32[4,2,5] {
  %l = f32[4,2,3]{2,1,0} parameter(0)
  %r = f32[4,3,5]{2,1,0} parameter(1)
  ROOT %o = f32[4,2,5]{2,1,0} dot(%l, %r), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
}
"""
    costs = costs_of(parse_program(text.splitlines()), MESH)
    assert costs.product_flops == 2 * 4 * 2 * 3 * 5
    assert costs.product_sizes == (ProductSize(3, (8, 20), 1, costs.product_flops),)


def test_positions_of_a_kernel_are_contracted_together() -> None:
    text = """HloModule jit_step

ENTRY %main (l: f32[8192,6,64], r: f32[6,64,512]) -> f32[8192,512,1] {
  %l = f32[8192,6,64]{2,1,0} parameter(0)
  %r = f32[6,64,512]{2,1,0} parameter(1)
  ROOT %o = f32[8192,512,1]{2,1,0} convolution(%l, %r), window={size=6}, dim_labels=b0f_0io->bf0
}
"""
    costs = costs_of(parse_program(text.splitlines()), MESH)
    assert costs.product_sizes == (ProductSize(6 * 64, (8192, 512), 1, 2 * 8192 * 384 * 512),)


def test_a_matrix_unit_is_filled_by_the_better_operand() -> None:
    assert ProductSize(128, (4, 256), 1, 1).filled(128) == 1
    assert ProductSize(64, (512, 512), 1, 1).filled(128) == 0.5
    assert ProductSize(64, (512, 512), 1, 1).filled(256) == 0.25
    assert ProductSize(256, (64, 96), 1, 1).filled(128) == 0.75


@pytest.mark.parametrize(
    ("groups", "axes"),
    [
        (Groups(((0, 2, 4, 6), (1, 3, 5, 7))), "data"),
        (Groups(((0, 1), (2, 3), (4, 5), (6, 7))), "model"),
        (Groups(), "data+model"),
        (Groups(((0, 2), (4, 6), (1, 3), (5, 7))), "other"),  # half of an axis
        (Groups(((0, 3), (1, 2), (4, 7), (5, 6))), "other"),
        (Groups(((8, 9),)), "other"),
        (Groups(pairs=((0, 1), (1, 0))), "model"),
        (None, "other"),
    ],
)
def test_groups_have_the_names_of_axes(groups: Groups | None, axes: str) -> None:
    assert axes_of(groups, MESH) == axes
