"""A slice's mesh for whatever this process's T5X builds, without importing T5X or JAX."""

from __future__ import annotations

from types import ModuleType

from t5x_harness.slices.slice import Slice
from t5x_harness.system.after_import import after_import


def install_mesh(slice: Slice, data_positions: int | None = None) -> None:
    """Makes ``t5x.partitioning`` of whichever runtime build this slice's mesh over the process's CPU devices.

    Acts at once where the module is imported already, and otherwise when it is.  Installing another slice replaces
    this one.  Costs nothing until then: neither T5X nor JAX is imported.

    Args:
      slice: whose mesh.
      data_positions: how many positions along the mesh's data axis are kept, the first ones; None for all.
    """

    def emulate(module: ModuleType) -> None:
        from t5x_harness.slices.emulated_mesh import emulate_slice

        emulate_slice(module, slice, data_positions)

    after_import("t5x.partitioning", emulate)
