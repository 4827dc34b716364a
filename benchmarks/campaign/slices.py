"""Mutants of slices and meshes: partitions, submeshes, batches and dimensions that do not fit, and rules of axes."""

import itertools
from collections.abc import Iterator, Sequence

from t5x_harness.gin.program import Binding, GinProgram
from t5x_harness.gin.values import format_value
from t5x_harness.slices.slice import Slice, get_slice, slice_names
from t5x_harness.spec import Mode

from .mutant import Case, Mutant, with_lines

_LARGEST = 32
_SLICES = tuple(s for s in map(get_slice, slice_names()) if 2 <= s.num_devices <= _LARGEST)
_USUAL = get_slice("v3-8")

_PARTITIONER = "partitioning.PjitPartitioner"
_NUMBER = f"{_PARTITIONER}.num_partitions"
_SUBMESH = f"{_PARTITIONER}.model_parallel_submesh"
_RULES = f"{_PARTITIONER}.logical_axis_rules"
_STANDARD = "partitioning.standard_logical_axis_rules"
_OF_BATCH = ("BATCH_SIZE", "batch_size", "utils.DatasetConfig.batch_size")

_AXES = (
    *(("batch", "data"), ("vocab", "model"), ("embed", None), ("mlp", "model"), ("heads", "model"), ("kv", None)),
    *(("joined_kv", "model"), ("relpos_buckets", None), ("length", None), ("layers", None), ("stack", None)),
    ("mlp_activations", None),
)
"""What ``standard_logical_axis_rules`` gives for one dimension."""


def of_meshes(case: Case, program: GinProgram) -> Iterator[Mutant]:
    """Yields mutants of everything that decides how a case's arrays are laid out.

    Args:
      case: the case.
      program: its statements, in which the sizes of its model are.
    """
    for each in _SLICES:
        yield _on(case, each, "slice", (), (*_OF_BATCH, "num_partitions"))
        yield from _partitions(case, each)
        yield from _submeshes(case, each)
        yield from _batches(case, each)
    yield from _others(case)
    yield from _rules(case)
    if case.name == "pretrain":  # the others start from a checkpoint, which another size does not fit
        yield from _sizes(case, program)


def _on(case: Case, slice_: Slice, kind: str, lines: Sequence[str], names: Sequence[str]) -> Mutant:
    return with_lines(case, f"mesh: {kind}", lines, names, slice=slice_.name)


def _partitions(case: Case, slice_: Slice) -> Iterator[Mutant]:
    devices = slice_.num_devices
    for number in sorted({0, -1, 1, 2, 3, 4, 5, 8, 16, devices, 2 * devices}):
        lines = (_batch(case, devices), f"{_NUMBER} = {number}")
        yield _on(case, slice_, "partitions", lines, (_NUMBER, "num_partitions"))
    yield _on(case, slice_, "neither partitions nor submesh", (f"{_NUMBER} = None",), (_NUMBER, "num_partitions"))


def _submeshes(case: Case, slice_: Slice) -> Iterator[Mutant]:
    bounds = slice_.bounds
    others = [tuple(n + (i == j) for j, n in enumerate(bounds)) for i in range(4)]
    others += [tuple(0 if i == j else 1 for j in range(4)) for i in range(4)]
    others += [tuple(bounds[j] if i == j else 1 for j in range(4)) for i in range(4)]
    shapes = (bounds, bounds[:3], (*bounds, 1), (slice_.num_devices,), (-1, 1, 1, 1), (1, 1, 1, 1), (), *others)
    names = (_SUBMESH, "model_parallel_submesh", "submesh")
    for shape in dict.fromkeys(shapes):
        lines = (_batch(case, slice_.num_devices), f"{_SUBMESH} = {format_value(shape)}")
        yield _on(case, slice_, "submesh", lines, names)
    for number in (2, 3, slice_.num_devices):
        whole = f"{_SUBMESH} = (1, 1, 1, {bounds[3]})"
        lines = (_batch(case, slice_.num_devices), whole, f"{_NUMBER} = {number}")
        yield _on(case, slice_, "both", lines, (*names, "num_partitions"))


def _batches(case: Case, slice_: Slice) -> Iterator[Mutant]:
    devices = slice_.num_devices
    for size, tile in itertools.product((1, 2, 3, devices - 1, devices // 2, 2 * devices), (1, slice_.topology[0])):
        lines = (f"{_SUBMESH} = ({tile}, 1, 1, 1)", _batch(case, size))
        yield _on(case, slice_, "batch", lines, (*_OF_BATCH, _SUBMESH, "submesh"))
    if case.mode is Mode.TRAIN:
        for parts in (2, 3, devices, 2 * devices):
            lines = (f"{_SUBMESH} = (1, 1, 1, 1)", _batch(case, devices), f"trainer.Trainer.num_microbatches = {parts}")
            yield _on(case, slice_, "microbatches", lines, ("num_microbatches", *_OF_BATCH, _SUBMESH, "submesh"))


def _batch(case: Case, size: int) -> str:
    return f"{'BATCH_SIZE' if case.mode is Mode.TRAIN else 'utils.DatasetConfig.batch_size'} = {size}"


def _sizes(case: Case, program: GinProgram) -> Iterator[Mutant]:
    for statement in program.final.values():
        if not isinstance(statement, Binding) or not statement.target.endswith("T5Config"):
            continue
        if type(statement.value) is not int:
            continue
        name = f"network.T5Config.{statement.param}"
        for part, number in itertools.product((statement.value - 1, statement.value // 2 + 1, 1), (2, 4)):
            lines = (f"{_NUMBER} = {number}", f"{name} = {part}")
            yield _on(case, _USUAL, "size", lines, (name, statement.param))


def _others(case: Case) -> Iterator[Mutant]:
    for value in ("'2,1,1,1'", "2", "(1.0, 1, 1, 1)", "('1', 1, 1, 1)", "(True, 1, 1, 1)", "{'x': 1}", "@Mesh()"):
        yield _on(case, _USUAL, "submesh of another type", (f"{_SUBMESH} = {value}",), (_SUBMESH, "submesh"))
    for value in ("'cpu'", "'tpu'", "'gpu'", "'TPU'", "'tpus'", "''", "None", "7", "@cpu"):
        yield _on(case, _USUAL, "backend", (f"{_PARTITIONER}.backend = {value}",), ("backend",))
    for value in ("False", "None", "'False'", "0", "'no'"):
        yield _on(case, _USUAL, "params_on_devices", (f"{_PARTITIONER}.params_on_devices = {value}",), ("params",))
    shapes = ("(1, 8, 1)", "(1, 4, 2)", "(2, 4, 1)", "(1, 4, 1)", "(1, 8)", "(1, 16, 1)", "(0, 8, 1)", "(1, 1, 1)")
    names = ("ici_mesh_shape", "dcn_mesh_shape")
    for name, shape in itertools.product(names, shapes):
        yield _on(case, _USUAL, "one mesh shape", (f"{_PARTITIONER}.{name} = {shape}",), names)
    for inside, across in itertools.product(shapes, ("(1, 1, 1)", "(2, 1, 1)", "(1, 1)")):
        lines = (f"{_PARTITIONER}.ici_mesh_shape = {inside}", f"{_PARTITIONER}.dcn_mesh_shape = {across}")
        yield _on(case, _USUAL, "two mesh shapes", lines, names)


def _rules(case: Case) -> Iterator[Mutant]:
    dims = ("activation_partitioning_dims", "parameter_partitioning_dims")
    for (name, value), number in itertools.product(
        itertools.product(dims, ("0", "1", "2", "3", "-1", "'1'", "None", "1.0", "True", "[1]")), (1, 2, 4)
    ):
        lines = (f"{_NUMBER} = {number}", f"{_STANDARD}.{name} = {value}")
        yield _on(case, _USUAL, "standard rules", lines, (f"{_STANDARD}.{name}", name))
    for pair in _wrong_pairs("embed", "model"):
        statement = f"{_STANDARD}.additional_rules = [{format_value(pair)}]"
        names = (f"{_STANDARD}.additional_rules", "additional_rules")
        yield _on(case, _USUAL, "additional rules", (f"{_NUMBER} = 2", statement), names)
    for index, (axis, mesh) in enumerate(_AXES):
        rest = [*_AXES[:index], *_AXES[index + 1 :]]
        yield _ruled(case, "rule missing", rest)
        for pair in _wrong_pairs(axis, mesh):
            yield _ruled(case, "rule", [*rest[:index], pair, *rest[index:]])
        other = {"data": "model", "model": "data", None: "model"}[mesh]
        yield _ruled(case, "rule with another axis", [*rest[:index], (axis, other), *rest[index:]])
        yield _ruled(case, "rule twice", [(axis, other), *_AXES])
    for value in ("'standard'", "[]", "None", "'batch'", "{'batch': 'data'}", f"@{_STANDARD}", "7", "[None]", "[()]"):
        lines = (f"{_NUMBER} = 2", f"{_RULES} = {value}")
        yield _on(case, _USUAL, "rules of another type", lines, (_RULES, "logical_axis_rules"))


def _wrong_pairs(axis: str, mesh: str | None) -> Iterator[object]:
    """Yields what may stand in place of a rule, most of it wrong."""
    yield from ((axis[1:], mesh), (axis.upper(), mesh), (axis, "modle"), (axis, "Data"), (axis, ""), (axis, 1))
    yield from ((mesh, axis), (axis,), (axis, mesh, "data"), [axis, mesh], f"{axis} {mesh}", (axis, ("model",)))
    yield from ((axis, ("model", "model")), (axis, ("data", "model")), (axis, ()), (None, mesh), (axis, "replica"))
    yield (axis, ("data", None))


def _ruled(case: Case, kind: str, rules: Sequence[object]) -> Mutant:
    lines = (f"{_NUMBER} = 2", f"{_RULES} = {format_value(rules, limit=10_000)}")
    return _on(case, _USUAL, kind, lines, (_RULES, "logical_axis_rules"))
