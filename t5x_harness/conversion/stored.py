"""Reads the arrays of a checkpoint one at a time, in each layout that T5X reads.

This runs no part of T5X, except for checkpoints of TensorFlow, whose names T5X translates.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import tensorstore as ts
from etils import epath

from t5x_harness.conversion.errors import ConversionError, first_line
from t5x_harness.conversion.safetensors_files import Tensor, dtype_named
from t5x_harness.plan.stored_tree import (
    StoredLayout,
    StoredTree,
    layout_of,
    read_tree,
    specs_in_file,
    tensorflow_arrays,
)
from t5x_harness.standins.checkpoints import kvstore_of

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

TARGET = "target/"
_STEP = "state/step"
_STATE_OF_TENSORFLOW = re.compile(rb'model_checkpoint_path: "([^"]+)"')
_STEP_OF_PATH = re.compile(r"(?:checkpoint_|model\.ckpt-)(\d+)/*$")


@dataclasses.dataclass(frozen=True)
class StoredParameters:
    """The parameters of a checkpoint, each of which is read on request and not kept.

    Attributes:
      where: the checkpoint, for messages.
      layout: its layout on disk, in words.
      shapes: the shapes by T5X's names, without ``target/``.
      dtypes: the names of the element types, such as ``bfloat16``, by the same names.
      step: the train step at which it was written; None if it has none.
      others: the number of other arrays, such as the optimizer's state.
      read_array: reads the array of a name.
    """

    where: str
    layout: str
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    step: int | None
    others: int
    read_array: Callable[[str], Array] = dataclasses.field(repr=False)

    @property
    def tensors(self) -> list[Tensor]:
        """The arrays, without their data."""
        return [Tensor(name, shape, self.dtypes[name]) for name, shape in self.shapes.items()]

    def as_type(self, dtype: str | None) -> StoredParameters:
        """Returns the same with all floats in another element type; None keeps each as it is."""
        if dtype is None:
            return self
        dtypes = {name: dtype if "float" in kind else kind for name, kind in self.dtypes.items()}
        read = self.read
        return dataclasses.replace(
            self, dtypes=dtypes, read_array=lambda name: read(name).astype(dtype_named(dtypes[name]), copy=False)
        )

    def read(self, name: str) -> Array:
        """Reads one parameter.

        Raises:
          ConversionError: its data is damaged or missing.
        """
        try:
            array = self.read_array(name)
        except Exception as error:
            raise ConversionError(f"{self.where}: {name} cannot be read: {first_line(error)}") from error
        # T5X's checkpoints of version 2 hold the bytes of bfloat16 as uint16.
        return array.view(ml_dtypes.bfloat16) if array.dtype == np.uint16 else array


def read_t5x(path: str) -> StoredParameters:
    """Opens a checkpoint of T5X or of its TensorFlow predecessor.

    Args:
      path: the folder of a checkpoint, or of several, of which the latest counts, or the common prefix of a TensorFlow
        checkpoint's files; local, or at ``gs://``.

    Raises:
      ConversionError: there is no checkpoint, or it is damaged.
    """
    path = path if "://" in path else os.path.abspath(path)  # orbax reads no relative path
    path = _latest_of_tensorflow(path) or _latest_in(path) or path
    layout = layout_of(path)
    if layout is None:
        raise ConversionError(_nothing_at(path))
    try:
        if layout is StoredLayout.TENSORFLOW:
            return _tensorflow(path)
        tree = read_tree(path)
        assert tree is not None
        read = _reader_of_orbax(path) if layout is StoredLayout.ORBAX else _reader_of_file(path)
    except ConversionError:
        raise
    except Exception as error:
        raise ConversionError(f"{path}: its metadata cannot be read: {first_line(error)}") from error
    step = int(np.asarray(read(_STEP))) if _STEP in tree.arrays else _step_of(path)
    return _of_tree(path, tree, step, read)


def _of_tree(path: str, tree: StoredTree, step: int | None, read: Callable[[str], Array]) -> StoredParameters:
    of_model = {name: array for name, array in tree.arrays.items() if name.startswith(TARGET)}
    if not of_model:
        first = ", ".join(sorted(tree.arrays)[:3]) or "nothing"
        raise ConversionError(f"{path} holds no parameters: T5X has them under {TARGET}, and there is {first}")
    dtype = {"uint16": "bfloat16"}
    return StoredParameters(
        where=path,
        layout=str(tree.layout),
        shapes={name.removeprefix(TARGET): array.shape for name, array in of_model.items()},
        dtypes={name.removeprefix(TARGET): dtype.get(array.dtype, array.dtype) for name, array in of_model.items()},
        step=step,
        others=len(tree.arrays) - len(of_model) - (_STEP in tree.arrays),
        read_array=lambda name: read(f"{TARGET}{name}"),
    )


def _reader_of_orbax(path: str) -> Callable[[str], Array]:
    state = epath.Path(path) / "state"
    kvstore = kvstore_of(state)
    folder = {**kvstore, "path": f"{kvstore['path'].rstrip('/')}/"}
    is_database = (state / "manifest.ocdbt").exists()
    context = ts.Context()

    def read(name: str) -> Array:
        within = f"{name.replace('/', '.')}/"
        place = (
            {"driver": "ocdbt", "base": folder, "path": within}
            if is_database
            else {**folder, "path": folder["path"] + within}
        )
        return _read({"kvstore": place}, context)

    return read


def _reader_of_file(path: str) -> Callable[[str], Array]:
    specs = specs_in_file(epath.Path(path))
    folder = kvstore_of(epath.Path(path))
    context = ts.Context()

    def read(name: str) -> Array:
        stored = specs[name]
        if not isinstance(stored, dict):
            return np.asarray(stored)
        relative = stored["kvstore"].get("path") or stored["path"]
        if ".." in relative.split("/"):
            raise ValueError(f"it is said to lie at {relative}, outside of the checkpoint's folder")
        place = {**folder, "path": f"{folder['path'].rstrip('/')}/{relative.rstrip('/')}/"}
        return _read({"kvstore": place}, context)

    return read


def _read(spec: Mapping[str, Any], context: Any) -> Array:
    """Reads a zarr array by its own metadata, because a copy may have other chunks than the checkpoint says."""
    try:
        array = ts.open({"driver": "zarr", **spec}, context=context).result()
    except ValueError:
        array = ts.open({"driver": "zarr3", **spec}, context=context).result()
    found: Array = array.read().result()
    return found


def _tensorflow(path: str) -> StoredParameters:
    from t5x_harness.runtime.import_hooks import ensure_t5x

    ensure_t5x()
    arrays = tensorflow_arrays(path)
    of_model = {name.removeprefix(TARGET): value for name, value in arrays.items() if name.startswith(TARGET)}
    return StoredParameters(
        where=path,
        layout=str(StoredLayout.TENSORFLOW),
        shapes={name: tuple(value.shape) for name, value in of_model.items()},
        dtypes={name: str(value.dtype) for name, value in of_model.items()},
        step=int(np.asarray(arrays[_STEP].get())) if _STEP in arrays else _step_of(path),
        others=len(arrays) - len(of_model) - (_STEP in arrays),
        read_array=lambda name: np.asarray(of_model[name].get()),
    )


def _latest_of_tensorflow(path: str) -> str | None:
    """Returns the checkpoint that TensorFlow's state file in a folder names, or None if there is no such file."""
    file = epath.Path(path) / "checkpoint"
    if not file.is_file():
        return None
    with file.open("rb") as stream:
        match = _STATE_OF_TENSORFLOW.match(stream.read(4096))
    return os.path.join(path, match[1].decode()) if match else None


def _latest_in(path: str) -> str | None:
    """Returns the latest checkpoint of T5X in a folder, or None if it has none."""
    folder = epath.Path(path)
    names = [child.name for child in folder.iterdir()] if folder.is_dir() else []
    steps = [int(found[1]) for name in names if (found := re.fullmatch(r"checkpoint_(\d+)", name))]
    return os.path.join(path, f"checkpoint_{max(steps)}") if steps else None


def _step_of(path: str) -> int | None:
    match = _STEP_OF_PATH.search(path)
    return int(match[1]) if match else None


def _nothing_at(path: str) -> str:
    """Describes the content of a path that holds no checkpoint."""
    folder = epath.Path(path)
    if not folder.exists():
        parent = folder.parent
        near = sorted(p.name for p in parent.iterdir() if p.name.startswith("checkpoint_")) if parent.is_dir() else []
        beside = f"; beside it are {', '.join(near[-5:])}" if near else ""
        return f"there is no {path}{beside}"
    if not folder.is_dir():
        return f"{path} is a file: name the folder of a checkpoint, such as checkpoint_1000000"
    names = sorted(child.name for child in folder.iterdir())[:5]
    return (
        f"{path} holds no checkpoint, but {', '.join(names) or 'nothing'}: one of T5X has a folder state (orbax) or a "
        "file checkpoint (T5X's older layout), and one of transformers config.json and model.safetensors"
    )
