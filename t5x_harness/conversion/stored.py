"""T5X checkpoints: reads their arrays one at a time, in each layout that T5X reads, and writes them in orbax's layout.

Reading does not use T5X, except to translate the names in TensorFlow checkpoints. A written checkpoint has
parameters and a step, but no optimizer state.
"""

import dataclasses
import functools
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import ml_dtypes
import numpy as np
import tensorstore as ts
from etils import epath
from flax import traverse_util

from t5x_harness.conversion.request import ConversionError, first_line
from t5x_harness.conversion.safetensors_files import Array, Tensor, dtype_named
from t5x_harness.plan.stored_tree import (
    StoredLayout,
    StoredTree,
    layout_of,
    read_tree,
    specs_in_file,
    step_of,
    tensorflow_arrays,
)
from t5x_harness.runtime.import_hooks import ensure_t5x
from t5x_harness.standins.checkpoints import kvstore_of

TARGET = "target/"
_STEP = "state/step"
_STATE_OF_TENSORFLOW = re.compile(rb'model_checkpoint_path: "([^"]+)"')


@dataclasses.dataclass(frozen=True)
class StoredParameters:
    """The parameters of a checkpoint, each of which is read on request and not kept.

    Attributes:
      where: the checkpoint, for messages.
      layout: its layout on disk, in words.
      tensors: the arrays without their data, by T5X's names without ``target/``.
      step: the train step at which it was written; None if the checkpoint has none.
      others: the number of other arrays, such as the optimizer's state.
      read_array: reads the array with a name.
    """

    where: str
    layout: str
    tensors: Mapping[str, Tensor]
    step: int | None
    others: int
    read_array: Callable[[str], Array] = dataclasses.field(repr=False)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the arrays."""
        return {name: tensor.shape for name, tensor in self.tensors.items()}

    def as_type(self, dtype: str | None) -> Self:
        """Returns the same parameters with all floats in another element type; None keeps each unchanged."""
        if dtype is None:
            return self
        tensors = {
            name: dataclasses.replace(tensor, dtype=dtype) if "float" in tensor.dtype else tensor
            for name, tensor in self.tensors.items()
        }
        read = self.read
        return dataclasses.replace(
            self,
            tensors=tensors,
            read_array=lambda name: read(name).astype(dtype_named(tensors[name].dtype), copy=False),
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
        # T5X's version 2 checkpoints store the bytes of bfloat16 as uint16.
        return array.view(ml_dtypes.bfloat16) if array.dtype == np.uint16 else array


def read_t5x(path: str) -> StoredParameters:
    """Opens a checkpoint of T5X or of its TensorFlow predecessor.

    Args:
      path: the folder of a checkpoint, a folder of several (the latest one is used), or the common prefix of a
        TensorFlow checkpoint's files; a local path or one at ``gs://``.

    Raises:
      ConversionError: there is no checkpoint, or it is damaged.
    """
    path = path if "://" in path else os.path.abspath(path)  # orbax cannot read relative paths
    path = _latest_in(path)
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
    step = int(np.asarray(read(_STEP))) if _STEP in tree.arrays else step_of(path)
    return _of_tree(path, tree, step, read)


def _of_tree(path: str, tree: StoredTree, step: int | None, read: Callable[[str], Array]) -> StoredParameters:
    tensors = {}
    for name, array in tree.arrays.items():
        if name.startswith(TARGET):
            own = name.removeprefix(TARGET)
            tensors[own] = Tensor(own, array.shape, "bfloat16" if array.dtype == "uint16" else array.dtype)
    if not tensors:
        first = ", ".join(sorted(tree.arrays)[:3]) or "nothing"
        raise ConversionError(f"{path} holds no parameters: T5X has them under {TARGET}, and there is {first}")
    return StoredParameters(
        where=path,
        layout=str(tree.layout),
        tensors=tensors,
        step=step,
        others=len(tree.arrays) - len(tensors) - (_STEP in tree.arrays),
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
        if is_database:
            return _read({"driver": "ocdbt", "base": folder, "path": within}, context)
        return _read({**folder, "path": folder["path"] + within}, context)

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
        return _read({**folder, "path": f"{folder['path'].rstrip('/')}/{relative.rstrip('/')}/"}, context)

    return read


def _read(place: Mapping[str, Any], context: Any) -> Array:
    """Reads a zarr array using its own metadata, because a copy may have other chunks than the checkpoint records."""
    try:
        array = ts.open({"driver": "zarr", "kvstore": place}, context=context).result()
    except ValueError:
        array = ts.open({"driver": "zarr3", "kvstore": place}, context=context).result()
    found: Array = array.read().result()
    return found


def _tensorflow(path: str) -> StoredParameters:
    ensure_t5x()
    arrays = tensorflow_arrays(path)
    of_model = {name.removeprefix(TARGET): value for name, value in arrays.items() if name.startswith(TARGET)}
    return StoredParameters(
        where=path,
        layout=str(StoredLayout.TENSORFLOW),
        tensors={name: Tensor(name, tuple(value.shape), str(value.dtype)) for name, value in of_model.items()},
        step=int(np.asarray(arrays[_STEP].get())) if _STEP in arrays else step_of(path),
        others=len(arrays) - len(of_model) - (_STEP in arrays),
        read_array=lambda name: np.asarray(of_model[name].get()),
    )


def _latest_in(path: str) -> str:
    """Returns the latest checkpoint in a folder, as named by TensorFlow's state file; otherwise the path itself."""
    folder = epath.Path(path)
    if (state := folder / "checkpoint").is_file():
        with state.open("rb") as stream:
            if match := _STATE_OF_TENSORFLOW.match(stream.read(4096)):
                return os.path.join(path, match[1].decode())
    names = [child.name for child in folder.iterdir()] if folder.is_dir() else []
    steps = [int(found[1]) for name in names if (found := re.fullmatch(r"checkpoint_(\d+)", name))]
    return os.path.join(path, f"checkpoint_{max(steps)}") if steps else path


def _nothing_at(path: str) -> str:
    """Describes the content of a path that contains no checkpoint."""
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


@dataclasses.dataclass(frozen=True)
class LazyArray:
    """An array that is computed when it is written."""

    shape: tuple[int, ...]
    dtype: Any
    make: Callable[[], Array]

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape))

    @property
    def nbytes(self) -> int:
        """The size in bytes of its data once it is computed."""
        return self.size * int(np.dtype(self.dtype).itemsize)


def write_checkpoint(folder: Path, step: int, parameters: Mapping[str, LazyArray]) -> Path:
    """Writes a checkpoint, computing and writing its arrays one after another.

    Args:
      folder: the folder for ``checkpoint_<step>``.
      step: the checkpoint's train step.
      parameters: the arrays, by T5X's names without ``target/``.

    Returns:
      The checkpoint's folder.
    """
    import orbax.checkpoint as ocp

    flat: dict[str, Any] = {f"{TARGET}{name}": array for name, array in parameters.items()}
    flat[_STEP] = LazyArray((), np.int32, lambda: np.asarray(step, np.int32))
    tree = traverse_util.unflatten_dict(flat, sep="/")
    handlers = ocp.type_handlers.create_type_handler_registry((LazyArray, _handler()))
    absl_logger = logging.getLogger("absl")
    level = absl_logger.level
    absl_logger.setLevel(logging.ERROR)  # absl logs warnings that these are not JAX arrays
    try:
        state = ocp.PyTreeCheckpointHandler(use_ocdbt=True, type_handler_registry=handlers)
        with ocp.CheckpointManager(
            folder,
            options=ocp.CheckpointManagerOptions(step_prefix="checkpoint", enable_async_checkpointing=False),
            item_handlers={"state": state},
        ) as manager:
            manager.save(step, args=ocp.args.Composite(state=ocp.args.PyTreeSave(tree)), force=True)
            manager.wait_until_finished()
    finally:
        absl_logger.setLevel(level)
    return folder / f"checkpoint_{step}"


@functools.cache
def _handler() -> Any:
    """Returns the handler that gives orbax the data of a :class:`LazyArray`; the files are like NumPy arrays' files."""
    import orbax.checkpoint as ocp

    class LazyArrayHandler(ocp.type_handlers.NumpyHandler):  # type: ignore[misc]
        async def serialize(
            self, values: Sequence[LazyArray], infos: Sequence[Any], args: Sequence[Any] | None = None
        ) -> Sequence[Any]:
            options: Iterable[Any] = args or [ocp.SaveArgs()] * len(values)
            for value, info, option in zip(values, infos, options, strict=True):
                for future in await super().serialize([value.make()], [info], [option]):
                    future.result()  # so that only one array is in memory at a time
            return []

    return LazyArrayHandler(deepcopy_host_arrays=False)
