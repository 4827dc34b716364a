"""The text of compiled programs is read: shapes with their tiles, groups of devices in every notation, loops."""

import pytest

from t5x_harness.aot.hlo import Shape, groups_of, parse_arrays
from t5x_harness.aot.program_text import ProgramTextError, Trips, parse_program

LOOP = """HloModule jit_step, is_scheduled=true, entry_computation_layout={(f32[])->f32[]}

FileNames
1 "model.py"

%body (carried.1: (s32[], f32[4], s32[])) -> (s32[], f32[4], s32[]) {
  %carried.1 = (s32[]{:T(128)}, f32[4]{0:T(128)}, s32[]{:T(128)}) parameter(0)
  %at = s32[]{:T(128)} get-tuple-element(%carried.1), index=0
  %by = s32[]{:T(128)} STEP
  %next = s32[]{:T(128)} add(%at, %by)
  %x = f32[4]{0:T(128)} get-tuple-element(%carried.1), index=1
  %last.1 = s32[]{:T(128)} get-tuple-element(%carried.1), index=2
  ROOT %out = (s32[]{:T(128)}, f32[4]{0:T(128)}, s32[]{:T(128)}) tuple(%next, %x, /*index=2*/%last.1)
}

%test (carried.2: (s32[], f32[4], s32[])) -> pred[] {
  %carried.2 = (s32[]{:T(128)}, f32[4]{0:T(128)}, s32[]{:T(128)}) parameter(0)
  %at.2 = s32[]{:T(128)} get-tuple-element(%carried.2), index=0
  %limit = s32[]{:T(128)} LIMIT
  ROOT %less = pred[]{:T(512)} compare(SIDES), direction=DIRECTION
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %start = s32[]{:T(128)} constant(START)
  %twelve = s32[]{:T(128)} constant(12)
  %x.1 = f32[4]{0:T(128)} parameter(0), metadata={op_name="params[\\'wo\\']" stack_frame_id=1}
  %first = s32[]{:T(128)} copy(%start)
  %in = (s32[]{:T(128)}, f32[4]{0:T(128)}, s32[]{:T(128)}) tuple(%first, %x.1, /*index=2*/%twelve)
  %loop = (s32[]{:T(128)}, f32[4]{0:T(128)}, s32[]{:T(128)}) while(%in), condition=%test, body=%body
  ROOT %result = f32[4]{0:T(128)} get-tuple-element(%loop), index=1, metadata={op_name="jit(step)/while"}
}
"""
KEPT = "get-tuple-element(%carried.2), index=2"


def loop(
    start: str = "0", step: str = "constant(1)", limit: str = "constant(6)", direction: str = "LT", turned: bool = False
) -> str:
    """Returns a program with a loop that counts in this way."""
    text = LOOP.replace("START", start).replace("STEP", step).replace("LIMIT", limit).replace("DIRECTION", direction)
    return text.replace("SIDES", "%limit, %at.2" if turned else "%at.2, %limit")


def trips_of(text: str) -> Trips | None:
    return parse_program(text.splitlines()).trips.get("loop")


def times_of(text: str) -> int | None:
    trips = trips_of(text)
    assert trips is None or not trips.is_most
    return trips.times if trips else None


def test_a_program_has_computations_with_instructions() -> None:
    program = parse_program(loop().splitlines())
    assert (program.entry, list(program.computations)) == ("main", ["body", "test", "main"])
    root = program.main.root
    assert (root.name, root.opcode, root.operands, root.op_name) == (
        "result",
        "get-tuple-element",
        ("loop",),
        "jit(step)/while",
    )
    assert program.main.parameters[0].op_name == "params['wo']"
    assert program.main.by_name["in"].operands == ("first", "x.1", "twelve")
    assert program.main.by_name["loop"].called == {"condition": "test", "body": "body"}
    shapes = [(shape.dtype, shape.dims) for shape in program.main.by_name["loop"].arrays]
    assert shapes == [("s32", ()), ("f32", (4,)), ("s32", ())]
    assert [user.name for user in program.main.users["loop"]] == ["result"]


@pytest.mark.parametrize(
    ("text", "times"),
    [
        (loop(), 6),
        (loop(start="2", step="constant(3)"), 2),
        (loop(limit="constant(5)", direction="LE"), 6),
        (loop(direction="GT", turned=True), 6),
        (loop(start="6", step="constant(-2)", limit="constant(0)", direction="GT"), 3),
        (loop(limit=KEPT), 12),
        (loop(start="7"), 0),
        (loop(limit="partition-id()"), None),
        (loop(step="get-tuple-element(%carried.1), index=0"), None),
    ],
)
def test_the_text_shows_how_often_a_loop_runs(text: str, times: int | None) -> None:
    assert times_of(text) == times


def test_a_loop_that_may_end_early_has_a_most() -> None:
    also = "%less.1 = pred[] compare(%at.2, %limit), direction=LT\n  %going = pred[] not(%less.1)\n  "
    text = loop().replace("ROOT %less = pred[]{:T(512)} compare(", "%less = pred[]{:T(512)} compare(")
    text = text.replace("direction=LT\n", f"direction=LT\n  {also}ROOT %both = pred[] and(%less, %going)\n", 1)
    assert trips_of(text) == Trips(6, is_most=True)


def test_a_limit_that_the_loop_changes_is_no_limit() -> None:
    changed = loop(limit=KEPT).replace("tuple(%next, %x, /*index=2*/%last.1)", "tuple(%next, %x, /*index=2*/%at)")
    assert times_of(changed) is None


def test_shapes_have_layout_tiles_and_memory() -> None:
    (shape,) = parse_arrays("bf16[16,114,6,64]{1,3,2,0:T(8,128)(2,1)S(1)}")
    assert shape == Shape("bf16", (16, 114, 6, 64), (1, 3, 2, 0), ((8, 128), (2, 1)), 1)
    assert shape.bytes == 16 * 114 * 6 * 64 * 2
    assert parse_arrays("((f32[8]{0}, s32[]), u32[2]{0:T(256)})") == (
        Shape("f32", (8,), (0,)),
        Shape("s32", ()),
        Shape("u32", (2,), (0,), ((256,),)),
    )


@pytest.mark.parametrize(
    ("text", "padded"),
    [  # the bytes that the compiler allocated for each
        ("f32[16,114,32128]{2,0,1:T(8,128)}", 16 * 114 * 32128 * 4),
        ("f32[16,114,32128]{2,1,0:T(8,128)}", 16 * 120 * 32128 * 4),
        ("bf16[16,512,6,64]{1,3,2,0:T(8,128)(2,1)}", 6291456),
        ("bf16[16,512,6,64]{3,2,1,0:T(8,128)(2,1)}", 16 * 512 * 8 * 128 * 2),
        ("s32[16,114]{1,0:T(8,128)}", 8192),
        ("f32[384]{0:T(512)}", 2048),
        ("u32[10,4]{0,1:T(4,128)}", 2048),
        ("f32[]{:T(256)}", 1024),
        ("f32[3,5]{1,0}", 60),
    ],
)
def test_tiles_are_whole(text: str, padded: int) -> None:
    (shape,) = parse_arrays(text)
    assert shape.padded_bytes == padded


@pytest.mark.parametrize(
    ("notation", "members"),
    [
        ("{{0,1},{2,3}}", ((0, 1), (2, 3))),
        ("{{0,2,4,6},{1,3,5,7}}", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("{}", ()),
        ("[4,2]<=[8]", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("[2,4]<=[4,2]T(1,0)", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("[4,2]<=[2,2,2]T(1,0,2)", ((0, 1), (4, 5), (2, 3), (6, 7))),
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_0'}", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_0','axis_1'}", ((0, 1, 2, 3, 4, 5, 6, 7),)),
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_0':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
    ],
)
def test_groups_are_read_in_every_notation(notation: str, members: tuple[tuple[int, ...], ...]) -> None:
    found = groups_of(f", channel_id=1, replica_groups={notation}, use_global_device_ids=true")
    assert found.members == members


def test_a_permutation_has_pairs() -> None:
    found = groups_of(", channel_id=3, source_target_pairs={{0,14},{2,0}}, metadata={}")
    assert found.pairs == ((0, 14), (2, 0))


def test_a_notation_that_is_not_known_is_none() -> None:
    assert groups_of(", replica_groups=new['a'=2], dimensions={0}") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("HloModule jit_step\n", "a.txt: not the text of a whole compiled program: no ENTRY"),
        (loop()[:-3], "a.txt: not the text of a whole compiled program: it ends early"),
        (loop().replace("copy(%start)", "??"), "a.txt:27: not an instruction: %first = s32[]{:T(128)} ??"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(ProgramTextError) as error:
        parse_program(text.splitlines(), "a.txt")
    assert str(error.value) == message
