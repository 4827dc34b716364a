"""Groups of devices that take part in a collective together, parsed from each of XLA's notations."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np

_PAIRS = re.compile(r"\bsource_target_pairs=\{([\d,{}\s]*)\}")
_LISTED = re.compile(r"\breplica_groups=\{([\d,{}\s]*)\}")
_IOTA = re.compile(r"\breplica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_OF_MESH = re.compile(r"\breplica_groups=@?mesh[\[<]([^\]>]*)[\]>](,? ?device_ids=\S+)? \{([^}]*)\}")
_MESH_AXIS = re.compile(r"['\"]?([\w.-]+)['\"]?=(\d+)")
_USED_AXIS = re.compile(r"['\"]?([\w.-]+)['\"]?(?::\((\d+)\)(\d+))?")


@dataclasses.dataclass(frozen=True)
class Groups:
    """Which devices take part in a collective together.

    Attributes:
      members: positions in the program's device assignment, a tuple for each group; empty if all are in one group.
      pairs: source and target of each transfer, for a permutation.
    """

    members: tuple[tuple[int, ...], ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()


def groups_of(attributes: str) -> Groups | None:
    """Parses the devices of a collective in any of XLA's notations; returns None for an unknown notation."""
    if pairs := _PAIRS.search(attributes):
        numbers = _numbers(pairs[1])
        return Groups(pairs=tuple(zip(numbers[::2], numbers[1::2], strict=True)))
    if listed := _LISTED.search(attributes):
        return Groups(tuple(_numbers(group) for group in re.findall(r"\{([\d,\s]*)\}", listed[1]) if group))
    if iota := _IOTA.search(attributes):
        ids = _arranged(_numbers(iota[2]), _numbers(iota[3] or "")).reshape(_numbers(iota[1]))
        return Groups(_rows(ids.reshape(-1, ids.shape[-1])))
    if mesh := _OF_MESH.search(attributes):
        return _groups_of_axes(mesh[1], mesh[2], mesh[3])
    return None


def _groups_of_axes(axes: str, devices: str | None, used: str) -> Groups | None:
    """Returns the groups that some axes of a mesh span, with devices numbered in the order of the mesh."""
    if devices and "iota" not in devices:
        return None
    sizes = [(name, int(size)) for name, size in _MESH_AXIS.findall(axes)]
    chosen: dict[str, tuple[int, int]] = {}
    for name, before, size in _USED_AXIS.findall(used):
        whole = dict(sizes).get(name)
        if whole is None:
            return None
        chosen[name] = (int(before), int(size)) if size else (1, whole)
    dims: list[int] = []
    varying: list[int] = []
    for name, size in sizes:
        before, inside = chosen.get(name, (1, 1))
        varying.append(len(dims) + 1)
        dims += [before, inside, size // before // inside]
    ids = np.arange(math.prod(dims)).reshape(dims)
    kept = [axis for axis in range(len(dims)) if axis not in varying]
    count = math.prod(dims[axis] for axis in varying)
    return Groups(_rows(ids.transpose([*kept, *varying]).reshape(-1, count)))


def _arranged(sizes: tuple[int, ...], order: tuple[int, ...]) -> np.ndarray:
    ids = np.arange(math.prod(sizes)).reshape(sizes)
    return (ids.transpose(order) if order else ids).reshape(-1)


def _rows(ids: np.ndarray) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, ids.tolist()))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))
