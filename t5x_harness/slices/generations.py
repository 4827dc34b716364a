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
          sizes: the number in a slice's name, and its topology.
    """

    name: str
    device_kind: str
    cores_per_chip: int
    cores_per_name: int
    dimensions: int
    pod_chips: int
    usable_hbm_bytes: int
    sizes: tuple[tuple[int, tuple[int, ...]], ...]


def _sizes(cores_per_name: int, *topologies: str) -> tuple[tuple[int, tuple[int, ...]], ...]:
    shapes = [tuple(int(n) for n in t.split("x")) for t in topologies]
    return tuple((cores_per_name * math.prod(s), s) for s in shapes)


_CUBES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16", "8x16x16")
_FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")

GENERATIONS = (
    Generation(
        name="v2",
        device_kind="TPU v2",
        cores_per_chip=2,
        cores_per_name=2,
        dimensions=2,
        pod_chips=256,
        usable_hbm_bytes=int(7.48 * _GIB),
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
        sizes=_sizes(1, *_FLAT),
    ),
)
