"""Memory of compiled programs: the peak is the compiler's, and each byte of it has a kind."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from t5x_harness.aot.buffers import MemoryTextError, read_assignment
from t5x_harness.aot.costs import costs_of
from t5x_harness.aot.memory import (
    Buffer,
    DeviceMemory,
    MemoryKind,
    PaddedSize,
    argument,
    memory_of,
    module_of,
)
from t5x_harness.aot.program_text import parse_program, read_program

BACKWARD = "jit(train_step)/transpose(jvp(Transformer))/Transformer.decode/decoder"
PROGRAM = f"""HloModule jit_train_step

%body (c: (s32[], f32[2,8,128])) -> (s32[], f32[2,8,128]) {{
  %c = (s32[]{{:T(256)}}, f32[2,8,128]{{2,1,0:T(8,128)}}) parameter(0)
  %n = s32[]{{:T(256)}} get-tuple-element(%c), index=0
  %z = f32[2,8,128]{{2,1,0:T(8,128)}} get-tuple-element(%c), index=1
  %made = f32[2,8,128]{{2,1,0:T(8,128)}} negate(%z), metadata={{op_name="jit(train_step)/while/body/closed_call/encoder/neg"}}
  ROOT %o = (s32[]{{:T(256)}}, f32[2,8,128]{{2,1,0:T(8,128)}}) tuple(%n, %made)
}}

%test (d: (s32[], f32[2,8,128])) -> pred[] {{
  %d = (s32[]{{:T(256)}}, f32[2,8,128]{{2,1,0:T(8,128)}}) parameter(0)
  ROOT %yes = pred[]{{:T(512)}} constant(false)
}}

ENTRY %main (w: f32[100,256], m: f32[100], b: s32[16,114]) -> f32[100,256] {{
  %w = f32[100,256]{{1,0:T(8,128)}} parameter(0), metadata={{op_name="train_state._optimizer.target[\\'decoder\\'][\\'layers_0\\'][\\'mlp\\'][\\'wo\\'][\\'kernel\\']"}}
  %m = f32[100]{{0:T(512)}} parameter(1), metadata={{op_name="train_state._optimizer.state.param_states[\\'decoder\\'][\\'layers_0\\'][\\'mlp\\'][\\'wo\\'][\\'kernel\\'].v_row"}}
  %b = s32[16,114]{{1,0:T(8,128)}} parameter(2), metadata={{op_name="batch[\\'decoder_target_tokens\\']"}}
  %g = bf16[256,100]{{1,0:T(8,128)(2,1)}} custom-call(%w), metadata={{op_name="{BACKWARD}/layers_0/mlp/wo/dot_general"}}
  %a = f32[100,256]{{1,0:T(8,128)}} custom-call(%w), metadata={{op_name="{BACKWARD}/layers_0/mlp/dropout/mul"}}
  %a.1 = f32[100,256]{{1,0:T(8,128)}} custom-call(%w), metadata={{op_name="{BACKWARD}/layers_1/mlp/dropout/mul"}}
  %in = (s32[]{{:T(256)}}, f32[2,8,128]{{2,1,0:T(8,128)}}) tuple(%b, %b)
  %loop = (s32[]{{:T(256)}}, f32[2,8,128]{{2,1,0:T(8,128)}}) while(%in), condition=%test, body=%body
  ROOT %r = f32[100,256]{{1,0:T(8,128)}} custom-call(%w)
}}
"""  # noqa: E501
BUFFERS = """BufferAssignment:
allocation 0: size 106496, page 0, parameter 0, shape |f32[100,256]| at ShapeIndex {}, maybe-live-out:
 value: <1 w @0> (size=106496,offset=0): f32[100,256]{1,0:T(8,128)}
 value: <9 r @0> (size=106496,offset=0): f32[100,256]{1,0:T(8,128)}
allocation 1: size 2048, page 0, parameter 1, shape |f32[100]| at ShapeIndex {}:
 value: <2 m @0> (size=2048,offset=0): f32[100]{0:T(512)}
allocation 2: size 8192, page 0, parameter 2, shape |s32[16,114]| at ShapeIndex {}:
 value: <3 b @0> (size=8192,offset=0): s32[16,114]{1,0:T(8,128)}
allocation 3: size 1024, page 0, constant:
 value: <4 yes @0> (size=1024,offset=0): pred[]{:T(512)}
allocation 4: size 4096, page 0, thread-local:
 value: <5 n @0> (size=4096,offset=0): s32[]
allocation 5: size 300000, page 0, preallocated-temp:
 value: <6 g @0> (size=65536,offset=0): bf16[256,100]{1,0:T(8,128)(2,1)}
 value: <7 a @0> (size=106496,offset=65536): f32[100,256]{1,0:T(8,128)}
 value: <8 a.1 @0> (size=106496,offset=172032): f32[100,256]{1,0:T(8,128)}
 value: <10 made @0> (size=8192,offset=278528): f32[2,8,128]{2,1,0:T(8,128)}
 value: <11 loop{1} (phi) @0> (size=8192,offset=278528): f32[2,8,128]{2,1,0:T(8,128)}
 value: <12 in{} @0> (size=1024,offset=0): (s32[]{:T(256)}, f32[2,8,128]{2,1,0:T(8,128)})
allocation 6: size 9000, color 1, page 0, preallocated-temp:
 value: <13 z @1> (size=8192,offset=0): f32[2,8,128]{2,1,0:T(8,128)S(1)}

Total bytes used: 430000 (419.92KiB)
"""
RANGES = """HloLiveRange (max 9):
  InstructionSequence:
    0:w
    1:m
    2:b
    3:g
    4:a
    5:a.1
    6:in
    7:loop
    8:r
  BufferLiveRange:
    w{}:0-9
    g{}:3-6
    a{}:4-7
    a.1{}:5-7
    in{}:7-7
    made{}:6-7
    loop{1}:6-8
    z{}:2-3
  Live ranges at 5 (peak):
    w{}: 102400 bytes (cumulative: 102400 bytes)
"""

ADDED = "jit(train_step)/while/body/closed_call"
ACCUMULATED = f"""HloModule jit_train_step

%scale (p0: f32[100,256], p1: bf16[100,256]) -> f32[100,256] {{
  %p0 = f32[100,256]{{1,0:T(8,128)}} parameter(0)
  %p1 = bf16[100,256]{{1,0:T(8,128)(2,1)}} parameter(1)
  ROOT %sum = f32[100,256]{{1,0:T(8,128)}} add(%p0, %p1)
}}

%body (c: (s32[], f32[100,256], f32[100,256], f32[4,256])) -> (s32[], f32[100,256], f32[100,256], f32[4,256]) {{
  %c = (s32[]{{:T(256)}}, f32[100,256]{{1,0:T(8,128)}}, f32[100,256]{{1,0:T(8,128)}}, f32[4,256]{{1,0:T(8,128)}}) parameter(0)
  %n = s32[]{{:T(256)}} get-tuple-element(%c), index=0
  %before = f32[100,256]{{1,0:T(8,128)}} get-tuple-element(%c), index=1
  %x = f32[100,256]{{1,0:T(8,128)}} get-tuple-element(%c), index=2
  %y = f32[4,256]{{1,0:T(8,128)}} get-tuple-element(%c), index=3
  %new = bf16[100,256]{{1,0:T(8,128)(2,1)}} negate(%x), metadata={{op_name="{ADDED}/transpose(jvp(T))/T.decode/decoder/layers_0/mlp/wo/dot_general"}}
  %after = f32[100,256]{{1,0:T(8,128)}} fusion(%before, %new), kind=kLoop, calls=%scale, metadata={{op_name="{ADDED}/add"}}
  %scaled = f32[100,256]{{1,0:T(8,128)}} negate(%x), metadata={{op_name="{ADDED}/mul"}}
  %other = f32[4,256]{{1,0:T(8,128)}} add(%y, %y), metadata={{op_name="{ADDED}/add"}}
  ROOT %o = (s32[]{{:T(256)}}, f32[100,256]{{1,0:T(8,128)}}, f32[100,256]{{1,0:T(8,128)}}, f32[4,256]{{1,0:T(8,128)}}) tuple(%n, %after, %scaled, %other)
}}

%test (d: (s32[], f32[100,256], f32[100,256], f32[4,256])) -> pred[] {{
  %d = (s32[]{{:T(256)}}, f32[100,256]{{1,0:T(8,128)}}, f32[100,256]{{1,0:T(8,128)}}, f32[4,256]{{1,0:T(8,128)}}) parameter(0)
  ROOT %yes = pred[]{{:T(512)}} constant(false)
}}

ENTRY %main (w: f32[100,256]) -> f32[100,256] {{
  %w = f32[100,256]{{1,0:T(8,128)}} parameter(0), metadata={{op_name="train_state._optimizer.target[\\'decoder\\'][\\'layers_0\\'][\\'mlp\\'][\\'wo\\'][\\'kernel\\']"}}
  %in = (s32[]{{:T(256)}}, f32[100,256]{{1,0:T(8,128)}}, f32[100,256]{{1,0:T(8,128)}}, f32[4,256]{{1,0:T(8,128)}}) tuple(%w, %w, %w, %w)
  %loop = (s32[]{{:T(256)}}, f32[100,256]{{1,0:T(8,128)}}, f32[100,256]{{1,0:T(8,128)}}, f32[4,256]{{1,0:T(8,128)}}) while(%in), condition=%test, body=%body
  %outside = f32[100,256]{{1,0:T(8,128)}} add(%w, %w), metadata={{op_name="jit(train_step)/add"}}
  ROOT %r = f32[100,256]{{1,0:T(8,128)}} custom-call(%w)
}}
"""  # noqa: E501
CARRIED = """BufferAssignment:
allocation 0: size 106496, page 0, parameter 0, shape |f32[100,256]| at ShapeIndex {}, maybe-live-out:
 value: <1 w @0> (size=106496,offset=0): f32[100,256]{1,0:T(8,128)}
allocation 1: size 400000, page 0, preallocated-temp:
 value: <2 loop{1} (phi) @0> (size=106496,offset=0): f32[100,256]{1,0:T(8,128)}
 value: <3 after @0> (size=106496,offset=0): f32[100,256]{1,0:T(8,128)}
 value: <4 loop{2} (phi) @0> (size=106496,offset=106496): f32[100,256]{1,0:T(8,128)}
 value: <5 loop{3} (phi) @0> (size=4096,offset=212992): f32[4,256]{1,0:T(8,128)}
 value: <6 outside @0> (size=106496,offset=217088): f32[100,256]{1,0:T(8,128)}

Total bytes used: 430000 (419.92KiB)
"""
CARRIED_RANGES = """HloLiveRange (max 3):
  InstructionSequence:
    0:w
    1:in
    2:loop
    3:outside
    4:r
  BufferLiveRange:
    w{}:0-4
    loop{1}:2-4
    after{}:2-3
    loop{2}:2-4
    loop{3}:2-4
    outside{}:3-4
"""


@pytest.fixture
def memory(tmp_path: Path) -> DeviceMemory:
    return read(tmp_path)


def read(folder: Path, buffers: str = BUFFERS, ranges: str = RANGES, program: str = PROGRAM) -> DeviceMemory:
    files = folder / "x-buffer-assignment.txt", folder / "x-live-range.txt"
    for file, text in zip(files, (buffers, ranges), strict=True):
        file.write_text(text)
    return memory_of(parse_program(program.splitlines()), read_assignment(*files))


def test_the_peak_of_a_whole_step_is_the_compilers(repository: Path) -> None:
    folder = repository / "tests/reference/aot"
    facts = json.loads((folder / "facts.json").read_text())
    assignment = read_assignment(folder / "buffers.txt", folder / "live_ranges.txt")
    memory = memory_of(read_program(folder / "program.txt"), assignment)
    assert memory.peak_bytes == facts["peak_memory_in_bytes"]
    assert memory.reserved_bytes >= facts["argument_size_in_bytes"] + facts["temp_size_in_bytes"]
    assert sum(memory.kinds.values()) == memory.peak_bytes == sum(buffer.bytes for buffer in memory.buffers)
    parameters = 2 * (64 * 128 + 128 * 64) * 4 + 64 * 500 * 4
    assert memory.kinds[MemoryKind.PARAMETERS] == memory.kinds[MemoryKind.OPTIMIZER] == parameters
    assert memory.kinds[MemoryKind.INPUTS] == 8 * 128 * 64 * 2
    assert memory.kinds[MemoryKind.GRADIENTS] == 64 * 500 * 4
    assert memory.padding[0] == PaddedSize(500, 504, 1, 8 * 128 * 4 * 4)
    assert sum(each.bytes for each in memory.padding) <= memory.kinds[MemoryKind.PADDING]
    logits, hidden, *_ = memory.buffers
    padding = 8 * 128 * 4 * 4  # 500 columns in tiles of 8
    assert logits == Buffer(
        MemoryKind.TEMPORARIES, "logits_dense", "dot_general", (8, 128, 500), "f32", 1, 8 * 128 * 504 * 4, padding
    )
    assert (hidden.module, hidden.count, hidden.bytes) == ("layers_*/wi", 2, 2 * 8 * 128 * 128 * 2)


def test_the_peak_is_where_most_is_live(memory: DeviceMemory) -> None:
    temporary, arguments, constants = 65536 + 2 * 106496 + 8192, 106496 + 2048 + 8192, 1024
    assert memory.peak_bytes == temporary + arguments + constants
    assert memory.reserved_bytes == 106496 + 2048 + 8192 + 1024 + 4096 + 300000
    assert memory.fragmentation_bytes == memory.reserved_bytes - memory.peak_bytes


def test_each_byte_has_a_kind(memory: DeviceMemory) -> None:
    wo = 100 * 256 * 4
    assert dict(memory.kinds) == {
        MemoryKind.PARAMETERS: wo,
        MemoryKind.OPTIMIZER: 400,
        MemoryKind.INPUTS: 16 * 114 * 4,
        MemoryKind.GRADIENTS: 256 * 100 * 2,
        MemoryKind.TEMPORARIES: 2 * wo + 8192,
        MemoryKind.CONSTANTS: 1,
        MemoryKind.OUTPUTS: 0,
        MemoryKind.PADDING: 3 * (106496 - wo) + (2048 - 400) + (8192 - 16 * 114 * 4) + (65536 - 51200) + 1023,
    }


def test_padding_is_known_by_the_size_that_tiles_fill_up(memory: DeviceMemory) -> None:
    # The batch's [16, 114] takes 16 rows of 128; [256, 100] 128 columns; [100, 256] 104 rows.
    assert memory.padding == (
        PaddedSize(100, 128, 1, 65536 - 51200),
        PaddedSize(100, 104, 3, 3 * 4096),
        PaddedSize(100, 512, 1, 2048 - 400),
        PaddedSize(114, 128, 1, 8192 - 16 * 114 * 4),
    )


def test_two_padded_sizes_of_an_array_share_what_is_lost(tmp_path: Path) -> None:
    whole, part = "f32[2,8,128]{2,1,0:T(8,128)}", "f32[2,2,32]{2,1,0:T(8,128)}"
    small = BUFFERS.replace(f"(size=8192,offset=278528): {whole}", f"(size=8192,offset=278528): {part}")
    found = {each.size: each for each in read(tmp_path, small).padding}
    # 2 rows of 8 and 32 columns of 128: a quarter of both.
    lost = 8192 - 2 * 2 * 32 * 4
    assert found[2] == PaddedSize(2, 8, 1, lost // 2)
    assert found[32] == PaddedSize(32, 128, 1, lost // 2)


def test_equal_buffers_of_layers_are_one_row(memory: DeviceMemory) -> None:
    rows = {(buffer.kind, buffer.module): buffer for buffer in memory.buffers}
    dropout = rows[MemoryKind.TEMPORARIES, "decoder/layers_*/mlp/dropout"]
    assert dropout == memory.buffers[0]
    assert (dropout.count, dropout.bytes, dropout.padding_bytes) == (2, 2 * 106496, 2 * 4096)
    assert rows[MemoryKind.PARAMETERS, "decoder/layers_*/mlp/wo/kernel"].shape == (100, 256)
    assert rows[MemoryKind.OPTIMIZER, "decoder/layers_*/mlp/wo/kernel/v_row"].shape == (100,)
    assert rows[MemoryKind.GRADIENTS, "decoder/layers_*/mlp/wo"].dtype == "bf16"
    # A value that a loop carries is named after the instruction in its body that makes it.
    assert rows[MemoryKind.TEMPORARIES, "encoder"].primitive == "neg"


def test_gradients_that_microbatches_add_to_are_gradients(tmp_path: Path) -> None:
    memory = read(tmp_path, CARRIED, CARRIED_RANGES, ACCUMULATED)
    wo = 100 * 256 * 4
    assert (memory.kinds[MemoryKind.GRADIENTS], memory.kinds[MemoryKind.PARAMETERS]) == (wo, wo)
    # Gradients do not include other values that the loop carries, sums outside of it, or sums of another size.
    assert memory.kinds[MemoryKind.TEMPORARIES] == 2 * wo + 4 * 256 * 4
    assert sum(memory.kinds.values()) == memory.peak_bytes
    (gradient,) = [buffer for buffer in memory.buffers if buffer.kind is MemoryKind.GRADIENTS]
    assert (gradient.module, gradient.primitive) == ("decoder/layers_*/mlp/wo", "add")


def test_a_text_without_allocations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MemoryTextError) as error:
        read(tmp_path, buffers="BufferAssignment:\n")
    file = tmp_path / "x-buffer-assignment.txt"
    assert str(error.value) == f"{file}: no allocation in it: not a whole buffer assignment of XLA"


def test_a_text_without_live_ranges_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MemoryTextError) as error:
        read(tmp_path, ranges="HloLiveRange (max 9):\n")
    file = tmp_path / "x-live-range.txt"
    assert str(error.value) == f"{file}: no sequence of instructions with live ranges in it"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "train_state._optimizer.target['encoder']['layers_0']['attention']['out']['kernel']",
            (MemoryKind.PARAMETERS, "encoder/layers_0/attention/out/kernel"),
        ),
        (
            "train_state._optimizer.state.param_states['decoder']['relpos_bias']['rel_embedding'].v",
            (MemoryKind.OPTIMIZER, "decoder/relpos_bias/rel_embedding/v"),
        ),
        ("train_state._optimizer.state.step", (MemoryKind.OPTIMIZER, "step")),
        ("params['token_embedder']['embedding']", (MemoryKind.PARAMETERS, "token_embedder/embedding")),
        ("train_state.params['wo']['kernel']", (MemoryKind.PARAMETERS, "wo/kernel")),
        ("batch['target']", (MemoryKind.INPUTS, "batch/target")),
        ("rng", (MemoryKind.INPUTS, "rng")),
        ("", (MemoryKind.INPUTS, "")),
    ],
)
def test_arguments_are_known_by_name(name: str, expected: tuple[MemoryKind, str]) -> None:
    assert argument(name) == expected


@pytest.mark.parametrize(
    ("op_name", "module"),
    [
        (f"{BACKWARD}/layers_1/mlp/wi_0/dot_general", "decoder/layers_1/mlp/wi_0"),
        (
            "jit(train_step)/jvp(Transformer)/Transformer.encode/encoder/layers_0/mlp/jit(silu)/mul",
            "encoder/layers_0/mlp",
        ),
        ("jit(step)/transpose(jvp())/while/body/closed_call/rematted_computation/decoder/add", "decoder"),
        ("jit(step)/Transformer/Transformer.encode/encoder/layers_0/attention/add", "encoder/layers_0/attention"),
        ("jit(step)/decoder/cond/branch_1_fun/custom_jvp_call/mlp/mul", "decoder/mlp"),
        ("params['decoder']['wo']['kernel']", "decoder/wo/kernel"),
        ("jit(train_step)/add", ""),
        ("", ""),
    ],
)
def test_modules_are_known_by_name(op_name: str, module: str) -> None:
    assert module_of(op_name) == module


@pytest.mark.stack
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
def test_figures_of_a_real_compile_are_the_compilers(repository: Path, tmp_path: Path) -> None:
    script = repository / "tests/aot/tiny_step.py"
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    subprocess.run([sys.executable, str(script), str(tmp_path)], env=environment, check=True, timeout=300)
    facts = json.loads((tmp_path / "facts.json").read_text())
    (text,) = tmp_path.glob("*.after_optimizations.txt")
    (buffers,) = tmp_path.glob("*.after_optimizations-buffer-assignment.txt")
    (ranges,) = tmp_path.glob("*.after_optimizations-live-range.txt")
    program = read_program(text)
    memory = memory_of(program, read_assignment(buffers, ranges))
    assert memory.peak_bytes == pytest.approx(facts["peak_memory_in_bytes"], rel=0.001)
    assert memory.kinds[MemoryKind.PARAMETERS] == memory.kinds[MemoryKind.OPTIMIZER] > 0
    costs = costs_of(program, {"data": 4, "model": 2})
    assert costs.flops == pytest.approx(facts["flops"], rel=0.005)
    assert costs.hbm_bytes == pytest.approx(facts["bytes accessed"], rel=0.005)
    assert {(found.kind, found.axis) for found in costs.collectives} == {
        ("all-reduce", "model"),
        ("all-reduce", "data"),
        ("all-reduce", "data+model"),
    }
