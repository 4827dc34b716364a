"""What is known of one program at the config's own depth: read off the compiler, or extrapolated from few layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from t5x_harness.aot.code_size import most_code_bytes
from t5x_harness.aot.compiling import CompiledProgram
from t5x_harness.aot.convolutions import ProductSize
from t5x_harness.aot.costs import Collective, DeviceCosts
from t5x_harness.aot.depth import at_full_depth
from t5x_harness.aot.memory import Buffer, DeviceMemory, PaddedSize
from t5x_harness.aot.request import ProgramSpec


@dataclasses.dataclass(frozen=True)
class ProgramAccount:
    """What one run of a program takes of one device.

    Attributes:
      program: which.
      depths: the layers of each stack that it is extrapolated from; empty where all layers were compiled.
      why_whole: why all were, where a few were to do; empty otherwise.
      memory: in bytes.
      costs: of one run.
      code_bytes: of the program's code; None where none was generated.
      cpu_seconds: that lowering and compiling took; 0 where earlier runs had compiled it.
      host_bytes: the most memory of this machine that a compiling process had.
      mesh: devices by axis.
    """

    program: ProgramSpec
    depths: tuple[Mapping[str, int], ...]
    why_whole: str
    memory: DeviceMemory
    costs: DeviceCosts
    code_bytes: int | None
    cpu_seconds: float
    host_bytes: int
    mesh: Mapping[str, int]

    @property
    def is_extrapolated(self) -> bool:
        """Whether its numbers are those of fewer layers, drawn out."""
        return bool(self.depths)

    @property
    def needed_bytes(self) -> int:
        """What has to fit a device: what the compiler reserves, and the code where it is known."""
        return self.memory.reserved_bytes + (self.code_bytes or 0)

    @property
    def unknown_bytes(self) -> int:
        """What its code may take beside ``needed_bytes``; 0 where the code's size is known."""
        return most_code_bytes(self.costs.products) if self.code_bytes is None else 0


def account_of(
    program: ProgramSpec,
    compiled: Sequence[CompiledProgram],
    depths: Sequence[Mapping[str, int]],
    weights: Sequence[float],
    why_whole: str = "",
) -> ProgramAccount:
    """Returns the account of a program.

    Args:
      program: which.
      compiled: what was made of it, at each depth; all of them compiled.
      depths: layers by binding; empty where all layers were compiled.
      weights: of the depths; see :mod:`t5x_harness.aot.depth`.
      why_whole: why all layers were compiled, where a few were to do.
    """
    results = [each.result for each in compiled if each.result is not None]
    code = [each.code_bytes for each in results if each.code_bytes is not None]
    return ProgramAccount(
        program,
        tuple(depths),
        why_whole,
        _memory([each.memory for each in compiled if each.memory is not None], weights),
        _costs([each.costs for each in compiled if each.costs is not None], weights),
        round(at_full_depth(code, weights)) if len(code) == len(compiled) else None,
        sum(each.result.cpu_seconds for each in compiled if each.result is not None and not each.is_kept),
        max(each.host_bytes for each in results),
        compiled[0].lowered.mesh,
    )


def _memory(parts: Sequence[DeviceMemory], weights: Sequence[float]) -> DeviceMemory:
    first = parts[0]
    numbers: dict[str, Any] = {
        field.name: _number([getattr(part, field.name) for part in parts], weights)
        for field in dataclasses.fields(DeviceMemory)
        if field.type == "int"
    }
    # Gaps are accidents of packing, and no more with more layers.
    numbers["reserved_bytes"] = numbers["peak_bytes"] + min(part.fragmentation_bytes for part in parts)
    kinds = {kind: _number([part.kinds.get(kind, 0) for part in parts], weights) for kind in first.kinds}
    spaces = {space: max(part.spaces.get(space, 0) for part in parts) for space in first.spaces}
    buffers = _joined(
        [part.buffers for part in parts],
        weights,
        lambda b: (b.kind, b.module, b.primitive, b.shape, b.dtype),
        ("count", "bytes", "padding_bytes"),
    )
    largest: list[Buffer] = sorted(buffers, key=lambda b: -b.bytes)
    padding: list[PaddedSize] = _joined(
        [part.padding for part in parts], weights, lambda p: (p.size, p.in_tiles), ("count", "bytes")
    )
    padding.sort(key=lambda p: -p.bytes)
    return dataclasses.replace(
        first, **numbers, kinds=kinds, buffers=tuple(largest), spaces=spaces, padding=tuple(padding)
    )


def _costs(parts: Sequence[DeviceCosts], weights: Sequence[float]) -> DeviceCosts:
    first = parts[0]
    numbers = {
        name: _number([getattr(part, name) for part in parts], weights)
        for name in ("flops", "product_flops", "hbm_bytes", "products")
    }
    collectives: list[Collective] = _joined(
        [part.collectives for part in parts], weights, lambda c: (c.kind, c.axis), ("count", "bytes", "sent_bytes")
    )
    collectives.sort(key=lambda c: -c.bytes)
    sizes: list[ProductSize] = _joined(
        [part.product_sizes for part in parts], weights, lambda p: (p.contracted, p.sides), ("count", "flops")
    )
    sizes.sort(key=lambda p: -p.flops)
    return dataclasses.replace(
        first,
        **numbers,
        product_sizes=tuple(sizes),
        collectives=tuple(collectives),
        loops_of_most=tuple(dict.fromkeys(name for part in parts for name in part.loops_of_most)),
        loops_of_unknown_length=tuple(dict.fromkeys(name for part in parts for name in part.loops_of_unknown_length)),
    )


def _number(values: Sequence[float], weights: Sequence[float]) -> int:
    return max(0, round(at_full_depth(values, weights)))


def _joined(
    parts: Sequence[Sequence[Any]], weights: Sequence[float], key: Callable[[Any], Any], fields: Sequence[str]
) -> list[Any]:
    """Returns the things of all depths, each once, with their numbers at the full depth; none that is not there."""
    found: dict[Any, list[Any]] = {}
    for index, part in enumerate(parts):
        for thing in part:
            found.setdefault(key(thing), [None] * len(parts))[index] = thing
    joined = []
    for things in found.values():
        some = next(thing for thing in things if thing is not None)
        numbers = {
            field: _number([getattr(thing, field) if thing is not None else 0 for thing in things], weights)
            for field in fields
        }
        if all(numbers.values()) or numbers["count"]:
            joined.append(dataclasses.replace(some, **numbers))
    return joined
