"""TPU slices by name: their devices, and the place and capabilities of each device.

A slice is named as Cloud TPU names it (``v3-32``, ``v5litepod-16``) or by generation and topology in chips
(``v3:4x4``, ``v4:2x2x4``). Device order, coordinates, kinds and hosts are equal to what libtpu 0.0.51 reports through
``jax.experimental.topologies``; ``docs/slices.md`` lists the topologies that were compared.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Sequence
from typing import NamedTuple


@dataclasses.dataclass(frozen=True)
class Generation:
    """The properties that all slices of one TPU generation share.

    A device is a chip, or one of a chip's two cores on v2 and v3.

    Attributes:
      name: the name, such as ``v3``.
      device_kind: the value of ``jax.devices()[0].device_kind``, such as ``TPU v3``.
      cores_per_chip: the number of devices that JAX sees on one chip; 1 on v4 and v5p, whose two cores run as one
        (megacore).
      cores_per_name: the number that each chip adds to a slice's name: ``v4-8`` has 4 chips, ``v5e-8`` has 8.
      dimensions: the number of dimensions of the grid of chips, 2 or 3.
      pod_chips: the number of chips in the largest slice.
      matrix_unit: the number of rows, and of columns, of a matrix unit.
      usable_hbm_bytes: the memory of a *device* that a program may use; libtpu 0.0.51's compiler refuses more.
      chip_flops: the peak bfloat16 operations per second of a *chip's* matrix units.
      chip_hbm_bandwidth: the peak bytes per second that a chip reads from and writes to its memory.
      chip_ici_bandwidth: the peak bytes per second that a chip sends to its neighbors: half of Google's figure for both
        directions; None if Google's page for the generation has no figure.
      sizes: the number in each slice's name, and the slice's topology.
    """

    name: str
    device_kind: str
    cores_per_chip: int
    cores_per_name: int
    dimensions: int
    pod_chips: int
    matrix_unit: int
    usable_hbm_bytes: int
    chip_flops: float
    chip_hbm_bandwidth: float
    chip_ici_bandwidth: float | None
    sizes: tuple[tuple[int, tuple[int, ...]], ...]


_CUBES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16", "8x16x16")
_FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_OF_V3 = ("2x2", "4x4", "4x8", "8x8", "8x16", "16x16", "16x32", "32x32")

# Matrix units are 256 x 256 on v6e and 128 x 128 before (https://cloud.google.com/tpu/docs/system-architecture-tpu-vm).
# Operations and bytes per second of v3 to v6e are from Google's pages, https://cloud.google.com/tpu/docs/v3 and so on.
# The page of v2 has no figures. Its numbers are the 180 teraflops of four chips that Google announced, and the
# bandwidth in a paper that it cites, Jouppi et al., "A Domain-Specific Supercomputer for Training Deep Neural Networks"
# (2020).
_FIGURES = (
    # The attributes, with usable memory in GiB, operations in 1e12, and bytes to memory and to neighbors in 1e9.
    ("v2", "TPU v2", 2, 2, 2, 256, 128, 7.48, 45, 700, None, ("2x2", "4x4", "8x8", "8x16", "16x16")),
    ("v3", "TPU v3", 2, 2, 2, 1024, 128, 15.48, 123, 900, None, _OF_V3),
    ("v4", "TPU v4", 1, 2, 3, 4096, 128, 30.75, 275, 1200, None, _CUBES),
    ("v5e", "TPU v5 lite", 1, 1, 2, 256, 128, 15.75, 197, 819, 200, _FLAT),
    ("v5p", "TPU v5", 1, 2, 3, 8960, 128, 95.73, 459, 2765, 600, (*_CUBES, "16x16x16", "16x16x24")),
    ("v6e", "TPU v6 lite", 1, 1, 2, 256, 256, 31.24, 918, 1638, 400, _FLAT),
)


def _sizes(cores_per_name: int, topologies: Sequence[str]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    shapes = [tuple(int(n) for n in each.split("x")) for each in topologies]
    return tuple((cores_per_name * math.prod(shape), shape) for shape in shapes)


GENERATIONS = tuple(
    Generation(
        *(name, kind, cores, in_name, dimensions, chips, unit),
        usable_hbm_bytes=int(gib * 2**30),
        chip_flops=flops * 1e12,
        chip_hbm_bandwidth=hbm * 1e9,
        chip_ici_bandwidth=None if ici is None else ici * 1e9,
        sizes=_sizes(in_name, topologies),
    )
    for name, kind, cores, in_name, dimensions, chips, unit, gib, flops, hbm, ici, topologies in _FIGURES
)


class SliceError(ValueError):
    """There is no such slice; the message lists the nearest that exist."""


class DeviceCoords(NamedTuple):
    """The place of a device: its chip's place in the slice, its core on that chip, and the host that drives it."""

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
      topology: the number of chips along x, y and z.
      host_chips: the number of one host's chips along x, y and z.
    """

    name: str
    generation: Generation
    topology: tuple[int, int, int]
    host_chips: tuple[int, int, int]

    def __str__(self) -> str:
        return self.name

    @property
    def num_chips(self) -> int:
        """The number of chips in the slice."""
        return math.prod(self.topology)

    @property
    def num_devices(self) -> int:
        """The value of ``jax.device_count()`` on the slice."""
        return self.num_chips * self.generation.cores_per_chip

    @property
    def hosts(self) -> int:
        """The number of hosts, which is ``jax.process_count()`` on the slice."""
        return self.num_chips // math.prod(self.host_chips)

    @property
    def bounds(self) -> tuple[int, int, int, int]:
        """Devices along x, y, z and core: the hardware mesh that a model-parallel submesh has to divide."""
        return (*self.topology, self.generation.cores_per_chip)

    @property
    def host_bounds(self) -> tuple[int, int, int, int]:
        """The part of :attr:`bounds` that one host drives."""
        return (*self.host_chips, self.generation.cores_per_chip)

    @functools.cached_property
    def coordinates(self) -> tuple[DeviceCoords, ...]:
        """The place of each device, in the order of ``jax.devices()`` on the slice.

        Devices are listed host by host; hosts, a host's chips and a chip's cores each in raster order, x fastest.
        """
        (nx, ny, nz), (hx, hy, hz) = self.topology, self.host_chips
        corners = [(x, y, z) for z in range(0, nz, hz) for y in range(0, ny, hy) for x in range(0, nx, hx)]
        inside = [(x, y, z) for z in range(hz) for y in range(hy) for x in range(hx)]
        return tuple(
            DeviceCoords(x0 + x, y0 + y, z0 + z, core, host)
            for host, (x0, y0, z0) in enumerate(corners)
            for x, y, z in inside
            for core in range(self.generation.cores_per_chip)
        )

    @property
    def usable_hbm_bytes(self) -> int:
        """The bytes of one device's memory that the TPU compiler lets a program use (libtpu 0.0.51)."""
        return self.generation.usable_hbm_bytes

    def describe(self) -> str:
        """Describes the slice in one line: ``v3-32: 4x4 chips, 32 devices (TPU v3), 4 hosts``."""
        shape = "x".join(str(n) for n in self.topology[: self.generation.dimensions])
        counts = ((shape, "chip", self.num_chips), (self.num_devices, "device", self.num_devices))
        chips, devices = (f"{shown} {noun}{'' if number == 1 else 's'}" for shown, noun, number in counts)
        hosts = f"{self.hosts} host{'' if self.hosts == 1 else 's'}"
        return f"{self.name}: {chips}, {devices} ({self.generation.device_kind}), {hosts}"


def slice_names() -> tuple[str, ...]:
    """Returns the names of all slices, smallest first within each generation."""
    return tuple(f"{g.name}-{size}" for g in GENERATIONS for size, _ in g.sizes)


def slices_of_hosts(*hosts: int) -> list[Slice]:
    """Returns the slices that have one of these numbers of hosts, those with few devices first."""
    found = [each for each in map(get_slice, slice_names()) if each.hosts in hosts]
    return sorted(found, key=lambda each: each.num_devices)


def get_slice(name: str) -> Slice:
    """Returns the slice with a name or topology.

    Args:
      name: ``v2-8`` … ``v3-2048``, ``v4-8`` … (numbers count cores, two per chip), ``v5p-8`` … (also cores), ``v5e-1``
        … or ``v5litepod-1`` …, ``v6e-1`` … (numbers count chips); or a topology in chips such as ``v3:4x4``.

    Raises:
      SliceError: no such slice; the message names the nearest.
    """
    text = name.strip().lower().replace("v5litepod", "v5e")
    match = _FORM.fullmatch(text)
    generation = next((g for g in GENERATIONS if match and g.name == match["generation"]), None)
    if match is None or generation is None:
        raise SliceError(_no_such(name, _similar(text)))
    if match["size"]:
        topology = _named_topology(name, generation, int(match["size"]))
    else:
        topology = _given_topology(name, generation, tuple(int(n) for n in match["topology"].split("x")))
    return Slice(text, generation, topology, _host_chips(generation, topology))


def _named_topology(name: str, generation: Generation, size: int) -> tuple[int, int, int]:
    if topology := dict(generation.sizes).get(size):
        return _three(topology)
    nearest = sorted(generation.sizes, key=lambda s: abs(math.log(s[0] / max(size, 1))))[:3]
    raise SliceError(_no_such(name, [f"{generation.name}-{n}" for n, _ in sorted(nearest)]))


def _given_topology(name: str, generation: Generation, shape: tuple[int, ...]) -> tuple[int, int, int]:
    topology, chips = _three(shape), math.prod(shape)
    if len(shape) > 3 or (generation.dimensions == 2 and topology[2] != 1):
        grid = f"{generation.dimensions} dimensions, such as {'4x4' if generation.dimensions == 2 else '2x2x4'}"
        raise SliceError(f"{name!r} has too many numbers: {generation.name} chips form a grid of {grid}")
    if not chips:
        raise SliceError(f"{name!r} has no chips: every number of a topology is at least 1")
    if chips > generation.pod_chips:
        raise SliceError(f"{name!r} has {chips} chips: the largest {generation.name} slice has {generation.pod_chips}")
    if any(n % h for n, h in zip(topology, _host_chips(generation, topology), strict=True)):
        nearest = sorted(generation.sizes, key=lambda s: abs(math.log(math.prod(s[1]) / chips)))[:2]
        raise SliceError(
            f"{name!r} cannot be cut into hosts of 2x2 chips: x and y are each 1 or an even number;"
            f" nearest names: {', '.join(f'{generation.name}-{size}' for size, _ in sorted(nearest))}"
        )
    return topology


def _host_chips(generation: Generation, topology: tuple[int, int, int]) -> tuple[int, int, int]:
    if (generation.name, topology) in _SINGLE_HOST:
        return topology
    x, y, z = (min(n, h) for n, h in zip(topology, _HOST_CHIPS, strict=True))
    return x, y, z


def _three(shape: tuple[int, ...]) -> tuple[int, int, int]:
    padded = (*shape, 1, 1)
    return padded[0], padded[1], padded[2]


def _no_such(name: str, nearest: Sequence[str]) -> str:
    return f"{name!r} is not a TPU slice: nearest names: {', '.join(nearest)}; or give {_TOPOLOGY_HELP}"


def _similar(text: str) -> list[str]:
    ranges = {g.name: f"{g.name}-{g.sizes[0][0]} … {g.name}-{g.sizes[-1][0]}" for g in GENERATIONS}
    same_generation = [shown for generation, shown in ranges.items() if text.startswith(generation)]
    import difflib

    return same_generation or difflib.get_close_matches(text, slice_names(), n=3, cutoff=0.5) or list(ranges.values())
