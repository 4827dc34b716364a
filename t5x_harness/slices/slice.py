"""TPU slices by name: what devices a slice has, where they sit, and what each can do.

A slice is named as Cloud TPU names it (``v3-32``, ``v5litepod-16``) or by generation and topology in chips
(``v3:4x4``, ``v4:2x2x4``). Device order, coordinates, kinds and hosts are equal to what libtpu 0.0.51 reports through
``jax.experimental.topologies``; ``docs/slices.md`` lists the topologies that were compared.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from t5x_harness.slices.generations import GENERATIONS, Generation


class SliceError(ValueError):
    """There is no such slice; the message lists the nearest that exist."""


class DeviceCoords(NamedTuple):
    """Where a device sits: its chip's place in the slice, its core on that chip, and the host that drives it."""

    x: int
    y: int
    z: int
    core: int
    host: int


# A board of four chips has one host. The 8-chip v5e and v6e slices are the exception: Cloud TPU serves them as one VM.
_HOST_CHIPS = (2, 2, 1)
_SINGLE_HOST = {("v5e", (2, 4, 1)), ("v6e", (2, 4, 1))}

_FORM = re.compile(r"(?P<generation>v\d+[a-z]*)(?:-(?P<size>\d+)|:(?P<topology>\d+(?:x\d+)+))")
_TOPOLOGY_HELP = "a topology in chips, such as v3:4x4, v4:2x2x4 or v5e:4x8 (v2, v3, v5e, v6e: 2 numbers; v4, v5p: 3)"


@dataclasses.dataclass(frozen=True)
class Slice:
    """A TPU slice: a grid of chips, the hosts that drive them, and the devices that JAX sees there.

    Attributes:
      name: the name that the user gave, with ``v5litepod`` written ``v5e``.
      generation: the generation of its chips.
      topology: chips along x, y and z.
      host_chips: chips of one host along x, y and z.
    """

    name: str
    generation: Generation
    topology: tuple[int, int, int]
    host_chips: tuple[int, int, int]

    def __str__(self) -> str:
        return self.name

    @property
    def device_kind(self) -> str:
        """The value of ``jax.devices()[0].device_kind`` on the slice, such as ``TPU v3``."""
        return self.generation.device_kind

    @property
    def cores_per_chip(self) -> int:
        """Devices per chip: 2 on v2 and v3, else 1."""
        return self.generation.cores_per_chip

    @property
    def num_chips(self) -> int:
        """Chips in the slice."""
        return math.prod(self.topology)

    @property
    def num_devices(self) -> int:
        """The value of ``jax.device_count()`` on the slice."""
        return self.num_chips * self.cores_per_chip

    @property
    def hosts(self) -> int:
        """The number of hosts, which is ``jax.process_count()`` on the slice."""
        return self.num_chips // math.prod(self.host_chips)

    @property
    def bounds(self) -> tuple[int, int, int, int]:
        """Devices along x, y, z and core: the hardware mesh that a model-parallel submesh has to divide."""
        return (*self.topology, self.cores_per_chip)

    @property
    def host_bounds(self) -> tuple[int, int, int, int]:
        """The part of :attr:`bounds` that one host drives."""
        return (*self.host_chips, self.cores_per_chip)

    @functools.cached_property
    def coordinates(self) -> tuple[DeviceCoords, ...]:
        """The place of each device, in the order of ``jax.devices()`` on the slice.

        Devices are listed host by host; hosts, a host's chips and a chip's cores each in raster order, x fastest.
        """
        return tuple(self._in_device_order())

    def _in_device_order(self) -> Iterator[DeviceCoords]:
        (nx, ny, nz), (hx, hy, hz) = self.topology, self.host_chips
        corners = ((x, y, z) for z in range(0, nz, hz) for y in range(0, ny, hy) for x in range(0, nx, hx))
        inside = [(x, y, z) for z in range(hz) for y in range(hy) for x in range(hx)]
        for host, (x0, y0, z0) in enumerate(corners):
            for x, y, z in inside:
                for core in range(self.cores_per_chip):
                    yield DeviceCoords(x0 + x, y0 + y, z0 + z, core, host)

    @property
    def usable_hbm_bytes(self) -> int:
        """Memory of one device that the TPU compiler lets a program use, in bytes (libtpu 0.0.51)."""
        return self.generation.usable_hbm_bytes

    def describe(self) -> str:
        """Describes the slice in one line: ``v3-32: 4x4 chips, 32 devices (TPU v3), 4 hosts``."""
        shape = "x".join(str(n) for n in self.topology[: self.generation.dimensions])
        return f"{self.name}: {_count(shape, 'chip', self.num_chips)}, {_devices(self)}, {_hosts(self.hosts)}"


def _count(shown: str, noun: str, number: int) -> str:
    return f"{shown} {noun}{'' if number == 1 else 's'}"


def _devices(slice_: Slice) -> str:
    return f"{_count(str(slice_.num_devices), 'device', slice_.num_devices)} ({slice_.device_kind})"


def _hosts(number: int) -> str:
    return _count(str(number), "host", number)


def slice_names() -> tuple[str, ...]:
    """Returns the names of all slices, smallest first within each generation."""
    return tuple(f"{g.name}-{size}" for g in GENERATIONS for size, _ in g.sizes)


def get_slice(name: str) -> Slice:
    """Returns the slice with a name or topology.

    Args:
      name: ``v2-8`` … ``v3-2048``, ``v4-8`` … (numbers count cores, two a chip), ``v5p-8`` … (likewise), ``v5e-1`` …
        or ``v5litepod-1`` …, ``v6e-1`` … (numbers count chips); or a topology in chips such as ``v3:4x4``.

    Raises:
      SliceError: no such slice; the message names the nearest.
    """
    text = name.strip().lower().replace("v5litepod", "v5e")
    match = _FORM.fullmatch(text)
    generation = next((g for g in GENERATIONS if match and g.name == match["generation"]), None)
    if match is None or generation is None:
        raise SliceError(
            f"{name!r} is not a TPU slice: nearest names: {', '.join(_similar(text))}; or give {_TOPOLOGY_HELP}"
        )
    if match["size"]:
        topology = _named_topology(name, generation, int(match["size"]))
    else:
        topology = _given_topology(name, generation, tuple(int(n) for n in match["topology"].split("x")))
    return Slice(text, generation, topology, _host_chips(generation, topology))


def _named_topology(name: str, generation: Generation, size: int) -> tuple[int, int, int]:
    for known, topology in generation.sizes:
        if known == size:
            return _three(topology)
    nearest = sorted(generation.sizes, key=lambda s: abs(math.log(s[0] / max(size, 1))))[:3]
    names = ", ".join(f"{generation.name}-{n}" for n, _ in sorted(nearest))
    raise SliceError(f"{name!r} is not a TPU slice: nearest names: {names}; or give {_TOPOLOGY_HELP}")


def _given_topology(name: str, generation: Generation, shape: tuple[int, ...]) -> tuple[int, int, int]:
    topology = _three(shape)
    if len(shape) > 3 or (generation.dimensions == 2 and topology[2] != 1):
        raise SliceError(f"{name!r} has too many numbers: {generation.name} chips form a grid of {_grid(generation)}")
    if 0 in topology:
        raise SliceError(f"{name!r} has no chips: every number of a topology is at least 1")
    chips = math.prod(topology)
    if chips > generation.pod_chips:
        raise SliceError(f"{name!r} has {chips} chips: the largest {generation.name} slice has {generation.pod_chips}")
    if any(n % h for n, h in zip(topology, _host_chips(generation, topology), strict=True)):
        raise SliceError(
            f"{name!r} cannot be cut into hosts of 2x2 chips: x and y are each 1 or an even number;"
            f" nearest names: {', '.join(f'{generation.name}-{n}' for n in _nearest_by_chips(generation, chips))}"
        )
    return topology


def _grid(generation: Generation) -> str:
    return f"{generation.dimensions} dimensions, such as {'4x4' if generation.dimensions == 2 else '2x2x4'}"


def _nearest_by_chips(generation: Generation, chips: int) -> list[int]:
    nearest = sorted(generation.sizes, key=lambda s: abs(math.log(math.prod(s[1]) / chips)))[:2]
    return sorted(size for size, _ in nearest)


def _host_chips(generation: Generation, topology: tuple[int, int, int]) -> tuple[int, int, int]:
    if (generation.name, topology) in _SINGLE_HOST:
        return topology
    x, y, z = (min(n, h) for n, h in zip(topology, _HOST_CHIPS, strict=True))
    return x, y, z


def _three(shape: tuple[int, ...]) -> tuple[int, int, int]:
    padded = (*shape, 1, 1)
    return padded[0], padded[1], padded[2]


def _similar(text: str) -> list[str]:
    ranges = {g.name: f"{g.name}-{g.sizes[0][0]} … {g.name}-{g.sizes[-1][0]}" for g in GENERATIONS}
    same_generation = [shown for generation, shown in ranges.items() if text.startswith(generation)]
    return same_generation or difflib.get_close_matches(text, slice_names(), n=3, cutoff=0.5) or list(ranges.values())
