"""The mesh that T5X builds on a TPU slice, planned without a device.

T5X arranges a slice's devices in two axes, ``data`` and ``model``. The model axis is a box of devices, the *submesh*
``(x, y, z, cores)``, which T5X chooses by ``num_partitions`` or the user gives as ``model_parallel_submesh``; the boxes
that fill the slice form the data axis. :func:`plan_mesh` computes the same arrangement, device for device, from the
slice's coordinates alone, and refuses what T5X refuses.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from t5x_harness.slices.slice import Slice

Submesh: TypeAlias = tuple[int, int, int, int]

_SHOWN_SUBMESHES = 6


class MeshRefused(ValueError):
    """T5X does not build such a mesh on the slice; the message says why, and which submeshes would fit."""


class HostsNotTiled(MeshRefused):
    """The submesh divides the slice, but some of its copies would span parts of hosts."""


@dataclasses.dataclass(frozen=True)
class MeshPlan:
    """A slice's devices, arranged in a data and a model axis.

    Attributes:
      device_indices: positions in ``jax.devices()``: one row per data position, one column per model position.
    """

    device_indices: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> dict[str, int]:
        """Devices along each axis: ``{"data": 4, "model": 2}``."""
        return {"data": len(self.device_indices), "model": len(self.device_indices[0])}


def plan_mesh(
    slice: Slice,
    num_partitions: int | None = None,
    model_parallel_submesh: Sequence[int] | None = None,
) -> MeshPlan:
    """Plans the mesh that T5X's default partitioner builds on a slice.

    Args:
      slice: the slice.
      num_partitions: the number of devices that hold one copy of the model; ignored if a submesh is given, as in T5X.
      model_parallel_submesh: (x, y, z, cores) of one copy of the model.

    Raises:
      MeshRefused: T5X has no submesh for this many partitions on these chips, or the submesh does not fit.
    """
    wanted = tuple(model_parallel_submesh) if model_parallel_submesh else _default_submesh(slice, num_partitions)
    if set(wanted[4:]) == {1}:  # T5X lays out four numbers, and only multiplies by the rest
        wanted = wanted[:4]
    if problem := _slice_problem(slice, wanted):
        raise refusal(slice, math.prod(wanted), problem)
    if problem := _host_problem(slice, wanted):
        raise refusal(slice, math.prod(wanted), problem, HostsNotTiled)
    return MeshPlan(tuple(_rows(slice, wanted)))


def fitting_submeshes(slice: Slice, num_partitions: int | None = None) -> tuple[Submesh, ...]:
    """Returns every submesh that :func:`plan_mesh` accepts on a slice, those with the fastest links first.

    Args:
      slice: the slice.
      num_partitions: only submeshes with this many devices; None for all.
    """
    xs, ys, zs, cores = map(divisors, slice.bounds)
    sized = (
        s for s in itertools.product(xs, ys, zs, cores) if num_partitions is None or math.prod(s) == num_partitions
    )
    fitting = [s for s in sized if not (_slice_problem(slice, s) or _host_problem(slice, s))]
    # A chip's cores are closest to each other, and the more cubic a box is, the shorter its longest path.
    return tuple(sorted(fitting, key=lambda s: (math.prod(s), -s[3], max(s[:3]), s[::-1])))


def mesh_text(shape: Mapping[str, int]) -> str:
    """Formats a mesh for reports: ``data 4 x model 2``."""
    return " x ".join(f"{axis} {size}" for axis, size in shape.items())


def refusal(slice: Slice, num_partitions: int | None, why: str, kind: type[MeshRefused] = MeshRefused) -> MeshRefused:
    """Makes the error for a mesh that T5X does not build, with the reason and the submeshes that would fit."""
    fitting = fitting_submeshes(slice, num_partitions) if num_partitions else ()
    if fitting:
        shown = ", ".join(str(s) for s in fitting[:_SHOWN_SUBMESHES])
        more = f" and {len(fitting) - _SHOWN_SUBMESHES} more" if len(fitting) > _SHOWN_SUBMESHES else ""
        fix = f"set model_parallel_submesh to one of {_devices(num_partitions)}: {shown}{more}"
    else:
        sizes = sorted({math.prod(s) for s in fitting_submeshes(slice)})
        fix = f"{slice.name} can be cut into submeshes of {_devices(*sizes)}"
    return kind(f"{why}; {fix}")


def _default_submesh(slice_: Slice, num_partitions: int | None) -> Submesh:
    """Returns T5X's own choice from a table by device kind; T5X has none for v5e, v5p and v6e."""
    x, _, z, cores = slice_.bounds
    choices: dict[int, Submesh] = {}
    if slice_.generation.name in ("v2", "v3"):
        choices = {1: (1, 1, 1, 1), 2: (1, 1, 1, 2), 4: (2, 1, 1, 2), 8: (2, 2, 1, 2), 16: (4, 2, 1, 2)}
    elif slice_.generation.name == "v4" and cores == 1:
        # A line of chips that wraps around is the fastest, so T5X prefers a whole axis if it is long enough.
        choices = {
            1: (1, 1, 1, 1),
            2: (1, 2, 1, 1),
            4: (4, 1, 1, 1) if x >= 4 else (2, 2, 1, 1),
            8: (1, 1, 8, 1) if z >= 8 else (4, 2, 1, 1),
            16: _v4_submesh_of_16(x, z),
        }
    if not num_partitions:
        raise refusal(slice_, None, "neither num_partitions nor model_parallel_submesh is given")
    if num_partitions not in choices:
        where = f"{slice_.generation.device_kind} ({slice_.name})"
        why = f"T5X has no default submesh for num_partitions={num_partitions} on {where}"
        raise refusal(slice_, num_partitions, why)
    return choices[num_partitions]


def _v4_submesh_of_16(x: int, z: int) -> Submesh:
    if z >= 16:
        return (1, 1, 16, 1)
    if x >= 8:
        return (8, 2, 1, 1)
    return (4, 4, 1, 1) if x >= 4 else (2, 2, 4, 1)


def _slice_problem(slice_: Slice, submesh: tuple[int, ...]) -> str | None:
    """Explains why a submesh does not divide the slice in a way that T5X can lay out; returns None if it does."""
    bounds = slice_.bounds
    if len(submesh) != len(bounds) or not all(isinstance(n, int) and n > 0 for n in submesh):
        return f"submesh {submesh} is not four numbers (x, y, z, cores), each at least 1"
    if any(whole % part for whole, part in zip(bounds, submesh, strict=True)):
        return f"submesh {submesh} does not divide {slice_.name}'s devices {bounds}"
    if _swapped_axes(bounds, submesh) and submesh[3] != bounds[3]:
        return (
            f"submesh {submesh} spans a whole axis of {slice_.name}'s devices {bounds},"
            f" which T5X takes only with all {bounds[3]} cores of each chip"
        )
    return None


def _host_problem(slice_: Slice, submesh: tuple[int, ...]) -> str | None:
    """Explains why copies of a submesh that divides the slice do not fill its hosts; returns None if they do."""
    if _swapped_axes(slice_.bounds, submesh):
        return None
    if any(part % host and host % part for part, host in zip(submesh, slice_.host_bounds, strict=True)):
        return (
            f"submesh {submesh} is neither a factor nor a multiple of the devices of one host"
            f" {slice_.host_bounds} of {slice_.name}"
        )
    return None


def _swapped_axes(bounds: Submesh, submesh: tuple[int, ...]) -> tuple[int, int, int, int] | None:
    """Returns T5X's order of axes for a submesh that spans a whole axis or all but one; None for one grouped by host.

    With z outermost, the devices of a host stay together without being grouped by host.
    """
    (nx, ny, nz, _), (x, y, z, *_) = bounds, submesh
    if (x == nx > 1 and y == z == 1) or (x == 1 and y == ny > 1 and z == nz > 1):
        return (0, 2, 1, 3)
    if (y == ny > 1 and x == z == 1) or (y == 1 and x == nx > 1 and z == nz > 1):
        return (2, 1, 0, 3)
    return None


def _rows(slice_: Slice, submesh: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yields device indices, one row per copy of the model.

    A device's place in the mesh follows from a sort key. Along each axis, its coordinate splits into the number of its
    box and the place in that box. If devices are grouped by host, each of these splits again into the host and the
    place on that host.
    """
    axes = _swapped_axes(slice_.bounds, submesh)

    def key(index: int) -> tuple[int, ...]:
        place = slice_.coordinates[index][:4]
        if axes:
            split = [divmod(place[a], submesh[a]) for a in axes]
            return tuple(box for box, _ in split) + tuple(inside for _, inside in split)
        boxes, insides = zip(*(divmod(p, s) for p, s in zip(place, submesh, strict=True)), strict=True)
        pairs = list(zip(submesh, slice_.host_bounds, strict=True))
        box_split = [divmod(b, max(h // s, 1)) for b, (s, h) in zip(boxes, pairs, strict=True)]
        inside_split = [divmod(i, min(s, h)) for i, (s, h) in zip(insides, pairs, strict=True)]
        return tuple(part[level] for split in (box_split, inside_split) for level in (0, 1) for part in split)

    order = sorted(range(slice_.num_devices), key=key)
    size = math.prod(submesh)
    for start in range(0, len(order), size):
        yield tuple(order[start : start + size])


def divisors(number: int) -> list[int]:
    """Returns the numbers that divide a number, ascending."""
    return [n for n in range(1, number + 1) if number % n == 0]


def _devices(*numbers: int | None) -> str:
    *first, last = [str(n) for n in numbers]
    return f"{', '.join(first)} or {last} devices" if first else f"{last} device{'' if last == '1' else 's'}"
