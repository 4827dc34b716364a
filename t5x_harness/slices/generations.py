"""The generations of TPU: what all slices of one have in common, and which slices have a name."""

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
      device_kind: as JAX prints it.
      cores_per_chip: devices that JAX sees on one chip; 1 on v4 and v5p, whose two cores run as one (megacore).
      cores_per_name: how much a chip counts in a slice's name: ``v4-8`` has 4 chips, ``v5e-8`` has 8.
      dimensions: 2 or 3, of the chips' grid.
      pod_chips: chips of the largest slice there is.
      usable_hbm_bytes: memory of a *device* that a program may use; beyond it libtpu 0.0.51's compiler refuses.
      chip_flops: bfloat16 operations that a *chip's* matrix units do in a second, at most.
      matrix_unit: rows and columns of a matrix unit.
      chip_hbm_bandwidth: bytes that a chip reads from and writes to its memory in a second, at most.
      chip_ici_bandwidth: bytes that a chip sends to its neighbors in a second, at most: half of what Google gives for
        both directions; None where Google's page of the generation gives none.
      sizes: the number in a slice's name, and its topology.
    """

    name: str
    device_kind: str
    cores_per_chip: int
    cores_per_name: int
    dimensions: int
    pod_chips: int
    usable_hbm_bytes: int
    chip_flops: float
    matrix_unit: int
    chip_hbm_bandwidth: float
    chip_ici_bandwidth: float | None
    sizes: tuple[tuple[int, tuple[int, ...]], ...]


def _sizes(cores_per_name: int, *topologies: str) -> tuple[tuple[int, tuple[int, ...]], ...]:
    shapes = [tuple(int(n) for n in t.split("x")) for t in topologies]
    return tuple((cores_per_name * math.prod(s), s) for s in shapes)


_CUBES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16", "8x16x16")
_FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")

# Matrix units are 256 x 256 on v6e and 128 x 128 before, says https://cloud.google.com/tpu/docs/system-architecture-tpu-vm.
# Operations and bytes per second are those of Google's pages, https://cloud.google.com/tpu/docs/v3 and so on for v3 to
# v6e. That of v2 has none: they are the 180 teraflops of four chips that Google announced, and the bandwidth in what
# that page refers to, Jouppi et al., "A Domain-Specific Supercomputer for Training Deep Neural Networks" (2020).
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
        matrix_unit=128,
        chip_hbm_bandwidth=700e9,
        chip_ici_bandwidth=None,
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
        matrix_unit=128,
        chip_hbm_bandwidth=900e9,
        chip_ici_bandwidth=None,
        sizes=_sizes(2, "2x2", "4x4", "4x8", "8x8", "8x16", "16x16", "16x32", "32x32"),
    ),
    Generation(
        name="v4",
        device_kind="TPU v4",
        cores_per_chip=1,
        cores_per_name=2,
        dimensions=3,
        pod_chips=4096,
        usable_hbm_bytes=int(30.75 * _GIB),
        chip_flops=275e12,
        matrix_unit=128,
        chip_hbm_bandwidth=1200e9,
        chip_ici_bandwidth=None,
        sizes=_sizes(2, *_CUBES),
    ),
    Generation(
        name="v5e",
        device_kind="TPU v5 lite",
        cores_per_chip=1,
        cores_per_name=1,
        dimensions=2,
        pod_chips=256,
        usable_hbm_bytes=int(15.75 * _GIB),
        chip_flops=197e12,
        matrix_unit=128,
        chip_hbm_bandwidth=819e9,
        chip_ici_bandwidth=200e9,
        sizes=_sizes(1, *_FLAT),
    ),
    Generation(
        name="v5p",
        device_kind="TPU v5",
        cores_per_chip=1,
        cores_per_name=2,
        dimensions=3,
        pod_chips=8960,
        usable_hbm_bytes=int(95.73 * _GIB),
        chip_flops=459e12,
        matrix_unit=128,
        chip_hbm_bandwidth=2765e9,
        chip_ici_bandwidth=600e9,
        sizes=_sizes(2, *_CUBES, "16x16x16", "16x16x24"),
    ),
    Generation(
        name="v6e",
        device_kind="TPU v6 lite",
        cores_per_chip=1,
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
