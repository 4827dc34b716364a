"""The names, shapes and types of a checkpoint's arrays, read from its metadata, and whether the arrays can be read.

Three layouts are known: orbax (a folder ``state``), T5X's older one (a msgpack file ``checkpoint`` that refers to zarr
arrays), and the layout of the TensorFlow code base (an index next to its data).
"""

import dataclasses
import enum
import json
import logging
import math
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath
from flax import serialization, traverse_util

from t5x_harness.buckets.emulated import on_disk

_TENSORSTORE_SPEC = {"driver", "kvstore", "metadata"}
_FILE, _STATE = "checkpoint", "state"

_BYTES_READ = 16 * 2**20
"""The largest amount to read, starting with the smallest arrays, so that checking a large checkpoint costs little."""
_DRIVERS = {"zarr": ".zarray", "zarr3": "zarr.json"}
"""Tensorstore's drivers, and the file in which each keeps an array's metadata."""

_STEP = re.compile(r"(?:checkpoint_|model\.ckpt-)(\d+)/*$")


def step_of(path: str) -> int | None:
    """Returns the step that the path of a checkpoint names; None if it is not the path of a single checkpoint."""
    named = _STEP.search(path)
    return int(named[1]) if named else None


class StoredLayout(enum.StrEnum):
    """The layout of a checkpoint on disk."""

    ORBAX = "orbax"
    T5X = "T5X's older layout"
    TENSORFLOW = "TensorFlow"


@dataclasses.dataclass(frozen=True)
class StoredArray:
    """One array of a checkpoint.

    Attributes:
      shape: the dimensions.
      dtype: the element type's name such as ``float32``.
      is_in_file: whether it is in the msgpack file of T5X's older layout itself, as small arrays of its optimizer are.
    """

    shape: tuple[int, ...]
    dtype: str
    is_in_file: bool = False


@dataclasses.dataclass(frozen=True)
class StoredTree:
    """The arrays of a checkpoint.

    Attributes:
      layout: the layout on disk.
      arrays: the arrays by name, such as ``target/encoder/layers_0/mlp/wi/kernel``.
    """

    layout: StoredLayout
    arrays: Mapping[str, StoredArray]


def layout_of(path: str) -> StoredLayout | None:
    """Returns the layout of a checkpoint.

    Args:
      path: the checkpoint: a folder, or the common prefix of a TensorFlow checkpoint's files.

    Returns:
      The layout, or None if there is no checkpoint of a known layout.
    """
    folder = epath.Path(on_disk(path))
    if epath.Path(on_disk(f"{path}.index")).exists():
        return StoredLayout.TENSORFLOW
    if (folder / _FILE).is_file():
        return StoredLayout.T5X
    return StoredLayout.ORBAX if (folder / _STATE).is_dir() else None


def read_tree(path: str) -> StoredTree | None:
    """Reads the metadata of a checkpoint.

    Args:
      path: the checkpoint's path, as for :func:`layout_of`.

    Returns:
      The tree, or None if there is no checkpoint of a known layout.

    Raises:
      Exception: the checkpoint is damaged; each library raises its own kind.
    """
    readers = {StoredLayout.TENSORFLOW: _tensorflow, StoredLayout.T5X: _msgpack, StoredLayout.ORBAX: _orbax}
    layout = layout_of(path)
    return None if layout is None else StoredTree(layout, readers[layout](epath.Path(on_disk(path))))


def _orbax(folder: epath.Path) -> dict[str, StoredArray]:
    """Reads a checkpoint with orbax itself: with OCDBT, the shapes are in a database in tensorstore's own format."""
    import orbax.checkpoint as ocp

    state = folder / _STATE
    for file in (state / "_METADATA", state / "_sharding", *state.glob("array_metadatas/*")):
        try:
            json.loads(file.read_bytes() if file.exists() else b"{}")
        except ValueError as error:  # orbax raises the same, without the file's name
            raise ValueError(f"{_STATE}/{file.relative_to(state)} is not JSON: {error}") from error
    absl_logger = logging.getLogger("absl")
    level = absl_logger.level
    absl_logger.setLevel(logging.ERROR)  # T5X's checkpoints lack the metadata file that orbax looks for
    try:
        tree = ocp.PyTreeCheckpointHandler(use_ocdbt=True).metadata(state)
    finally:
        absl_logger.setLevel(level)
    tree = getattr(tree, "tree", tree)
    flat = traverse_util.flatten_dict(tree, sep="/")
    return {name: StoredArray(tuple(value.shape), str(value.dtype)) for name, value in flat.items() if _is_array(value)}


def _is_array(value: Any) -> bool:
    return getattr(value, "shape", None) is not None


def specs_in_file(folder: epath.Path) -> dict[str, Any]:
    """Returns the contents of the msgpack file of T5X's older layout.

    Args:
      folder: the checkpoint.

    Returns:
      Arrays by name; for an array with its own folder, the JSON of its tensorstore spec.
    """
    content = serialization.msgpack_restore((folder / _FILE).read_bytes())
    # Files written by Flax itself have no version and no optimizer section.
    tree = content["optimizer"] if content.get("version") else content
    flat: dict[str, Any] = traverse_util.flatten_dict(
        tree, is_leaf=lambda _, value: set(value) >= _TENSORSTORE_SPEC, sep="/"
    )
    return flat


def _msgpack(folder: epath.Path) -> dict[str, StoredArray]:
    found = {}
    for name, value in specs_in_file(folder).items():
        if isinstance(value, dict):
            metadata = value["metadata"]
            dtype = value.get("dtype") or np.dtype(metadata["dtype"]).name  # zarr itself writes types as <f4
            found[name] = StoredArray(tuple(metadata["shape"]), dtype)
        elif _is_array(value):
            found[name] = StoredArray(tuple(value.shape), str(value.dtype), is_in_file=True)
    return found


def _tensorflow(path: epath.Path) -> dict[str, StoredArray]:
    """Reads the parameters; the optimizer's state is left out, because T5X generates part of it."""
    return {
        name: StoredArray(tuple(value.shape), str(value.dtype))
        for name, value in tensorflow_arrays(path).items()
        if name.startswith("target/")
    }


def tensorflow_arrays(path: os.PathLike[str] | str) -> dict[str, Any]:
    """Returns the arrays of a TensorFlow checkpoint, under the names that T5X gives them; ``get`` reads them."""
    from t5x import checkpoint_importer

    arrays = checkpoint_importer.t5_importer.apply(checkpoint_importer.load_tf_ckpt(os.fspath(path)))
    if any(re.search(r"layers_[1-9]\d*/relpos_bias", name) for name in arrays):
        return dict(arrays)
    return {re.sub(r"layers_0/relpos_bias", "relpos_bias", name): value for name, value in arrays.items()}


def unreadable(path: str, tree: StoredTree, names: Collection[str]) -> str | None:
    """Finds an array of a checkpoint that cannot be read.

    Args:
      path: the checkpoint, which is read only if it is on this machine's disk.
      tree: the contents according to its metadata.
      names: the arrays that are restored; T5X does not open the others, as the optimizer's state in evaluation.

    Returns:
      The name of the array and tensorstore's reason, or None if there is no such array.
    """
    import tensorstore as ts

    folder = Path(on_disk(path))
    if tree.layout is StoredLayout.TENSORFLOW or not folder.is_dir():
        return None
    specs: Mapping[str, Any]
    if tree.layout is StoredLayout.ORBAX:
        specs = _specs_of_orbax(folder / _STATE, tree)
    else:  # arrays that are not in the msgpack file itself
        stored = {name: spec for name, spec in specs_in_file(folder).items() if isinstance(spec, dict)}
        files = {name: f"{folder / spec['kvstore']['path']}/" for name, spec in stored.items()}
        specs = {n: {"driver": stored[n]["driver"], "kvstore": {"driver": "file", "path": files[n]}} for n in stored}
    opened = {name: ts.open(spec, open=True) for name, spec in specs.items() if name in names}
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


def _specs_of_orbax(state: Path, tree: StoredTree) -> Mapping[str, Any]:
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
    except TypeError:  # bfloat16, which plain NumPy does not know
        size = 2
    return math.prod(array.shape) * size
