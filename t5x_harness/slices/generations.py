"""The generations of TPUs: what all slices of a generation have in common, and the slices that have names."""

from __future__ import annotations

import dataclasses
import math

_GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Generation:
    """What all slices of one TPU generation share.

    A device is a chip, or one of a chip's two cores on v2 and v3.

    Attributes:
      name: ``v3``.
      device_kind: the kind as JAX prints it.
      cores_per_name: what a chip counts in a slice's name: ``v4-8`` has 4 chips, ``v5e-8`` has 8.
      dimensions: dimensions of the grid of chips, 2 or 3.
      pod_chips: chips of the largest slice.
      usable_hbm_bytes: memory of a *device* that a program may use; libtpu 0.0.51's compiler refuses more.
      chip_flops: peak bfloat16 operations per second of a *chip's* matrix units.
      chip_hbm_bandwidth: peak bytes per second that a chip reads from and writes to its memory.
      sizes: the number in each slice's name, and the slice's topology.
      cores_per_chip: devices that JAX sees on one chip; 1 on v4 and v5p, whose two cores run as one (megacore).
      matrix_unit: rows and columns of a matrix unit.
      chip_ici_bandwidth: peak bytes per second that a chip sends to its neighbors: half of Google's figure for both
        directions; None if Google's page of the generation gives no figure.
    """

    name: str
    device_kind: str
    cores_per_name: int
    dimensions: int
    pod_chips: int
    usable_hbm_bytes: int
    chip_flops: float
    chip_hbm_bandwidth: float
    sizes: tuple[tuple[int, tuple[int, ...]], ...]
    cores_per_chip: int = 1
    matrix_unit: int = 128
    chip_ici_bandwidth: float | None = None


def _sizes(cores_per_name: int, *topologies: str) -> tuple[tuple[int, tuple[int, ...]], ...]:
    shapes = [tuple(int(n) for n in t.split("x")) for t in topologies]
    return tuple((cores_per_name * math.prod(s), s) for s in shapes)


_CUBES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16", "8x16x16")
_FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")

# Matrix units are 256 x 256 on v6e and 128 x 128 before (https://cloud.google.com/tpu/docs/system-architecture-tpu-vm).
# Operations and bytes per second of v3 to v6e are from Google's pages, https://cloud.google.com/tpu/docs/v3 and so on.
# The page of v2 has no figures. These are the 180 teraflops of four chips that Google announced, and the bandwidth in a
# paper that it cites, Jouppi et al., "A Domain-Specific Supercomputer for Training Deep Neural Networks" (2020).
GENERATIONS = (
    Generation(
        name="v2",
        device_kind="TPU v2",
        cores_per_chip=2,
        cores_per_name=2,
        dimensions=2,
        pod_chips=256,
        usable_hbm_bytes=int(7.48 * _GIB),
        chip_flops=45e12,
        chip_hbm_bandwidth=700e9,
        sizes=_sizes(2, "2x2", "4x4", "8x8", "8x16", "16x16"),
    ),
    Generation(
        name="v3",
        device_kind="TPU v3",
        cores_per_chip=2,
        cores_per_name=2,
        dimensions=2,
        pod_chips=1024,
        usable_hbm_bytes=int(15.48 * _GIB),
        chip_flops=123e12,
        chip_hbm_bandwidth=900e9,
        sizes=_sizes(2, "2x2", "4x4", "4x8", "8x8", "8x16", "16x16", "16x32", "32x32"),
    ),
    Generation(
        name="v4",
        device_kind="TPU v4",
        cores_per_name=2,
        dimensions=3,
        pod_chips=4096,
        usable_hbm_bytes=int(30.75 * _GIB),
        chip_flops=275e12,
        chip_hbm_bandwidth=1200e9,
        sizes=_sizes(2, *_CUBES),
    ),
    Generation(
        name="v5e",
        device_kind="TPU v5 lite",
        cores_per_name=1,
        dimensions=2,
        pod_chips=256,
        usable_hbm_bytes=int(15.75 * _GIB),
        chip_flops=197e12,
        chip_hbm_bandwidth=819e9,
        chip_ici_bandwidth=200e9,
        sizes=_sizes(1, *_FLAT),
    ),
    Generation(
        name="v5p",
        device_kind="TPU v5",
        cores_per_name=2,
        dimensions=3,
        pod_chips=8960,
        usable_hbm_bytes=int(95.73 * _GIB),
        chip_flops=459e12,
        chip_hbm_bandwidth=2765e9,
        chip_ici_bandwidth=600e9,
        sizes=_sizes(2, *_CUBES, "16x16x16", "16x16x24"),
    ),
    Generation(
        name="v6e",
        device_kind="TPU v6 lite",
        cores_per_name=1,
        dimensions=2,
        pod_chips=256,
        usable_hbm_bytes=int(31.24 * _GIB),
        chip_flops=918e12,
        matrix_unit=256,
        chip_hbm_bandwidth=1638e9,
        chip_ici_bandwidth=400e9,
        sizes=_sizes(1, *_FLAT),
    ),
)
