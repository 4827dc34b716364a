"""Whether the arrays of a checkpoint can be read: all are opened, and the small ones are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t5x_harness.buckets.emulated import on_disk
from t5x_harness.plan.stored_tree import StoredArray, StoredLayout, StoredTree, specs_in_file

_BYTES_READ = 16 * 2**20
"""How much is read, the smallest arrays first: checking a large checkpoint must cost little."""
_DRIVERS = {"zarr": ".zarray", "zarr3": "zarr.json"}
"""Tensorstore's drivers, and the file in which each keeps an array's metadata."""


def unreadable(path: str, tree: StoredTree) -> str | None:
    """Finds an array of a checkpoint that cannot be read.

    Args:
      path: the checkpoint; it is only read if it is on this machine's disk.
      tree: what its metadata says it holds.

    Returns:
      The name of the array and tensorstore's reason, or None if there is no such array.
    """
    import tensorstore as ts

    folder = Path(on_disk(path))
    if tree.layout is StoredLayout.TENSORFLOW or not folder.is_dir():
        return None
    specs = _older_layout(folder) if tree.layout is StoredLayout.T5X else _orbax(folder / "state", tree)
    opened = {name: ts.open(spec, open=True) for name, spec in specs.items()}
    left = _BYTES_READ
    for name in sorted(opened, key=lambda name: _bytes(tree.arrays[name])):
        left -= _bytes(tree.arrays[name])
        try:
            array = opened[name].result()
            if left >= 0:
                array.read().result()
        except (ValueError, RuntimeError, OSError) as error:
            reason = str(error).splitlines()[0].partition(" [")[0]
            return f"{name}: {reason.replace(str(folder), path.rstrip('/'))}"
    return None


def _older_layout(folder: Path) -> Mapping[str, Any]:
    """Returns tensorstore's spec for each array that is not in the msgpack file itself."""
    stored = {name: value for name, value in specs_in_file(folder).items() if isinstance(value, dict)}
    return {
        name: {"driver": spec["driver"], "kvstore": {"driver": "file", "path": f"{folder / spec['kvstore']['path']}/"}}
        for name, spec in stored.items()
    }


def _orbax(state: Path, tree: StoredTree) -> Mapping[str, Any]:
    """Returns tensorstore's spec for each array that is stored under the name that T5X gives it."""
    import tensorstore as ts

    if (state / "manifest.ocdbt").exists():
        database = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{state}/"}}
        keys = {key.decode() for key in ts.KvStore.open(database).result().list().result()}
    else:
        database = {"driver": "file"}
        keys = {f"{file.parent.name}/{file.name}" for file in (*state.glob("*/.zarray"), *state.glob("*/zarr.json"))}
    specs = {}
    for name in tree.arrays:
        key = name.replace("/", ".")
        driver = next((driver for driver, file in _DRIVERS.items() if f"{key}/{file}" in keys), None)
        if driver is not None:
            place = f"{key}/" if "base" in database else f"{state / key}/"
            specs[name] = {"driver": driver, "kvstore": {**database, "path": place}}
    return specs


def _bytes(array: StoredArray) -> int:
    try:
        size = np.dtype(array.dtype).itemsize
    except TypeError:  # bfloat16, which NumPy does not know by itself
        size = 2
    return math.prod(array.shape) * size
