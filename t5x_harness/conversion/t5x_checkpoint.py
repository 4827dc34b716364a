"""Writes a checkpoint that T5X restores, in orbax's layout: parameters and step, without an optimizer's state."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from t5x_harness.conversion.stored import TARGET

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_STATE = "state"


@dataclasses.dataclass(frozen=True)
class LazyArray:
    """An array that is made when it is written."""

    shape: tuple[int, ...]
    dtype: Any
    make: Callable[[], Array]

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape))

    @property
    def nbytes(self) -> int:
        """The size of its data once it is made."""
        return self.size * int(np.dtype(self.dtype).itemsize)


def write_checkpoint(folder: Path, step: int, parameters: Mapping[str, LazyArray]) -> Path:
    """Writes a checkpoint, making and writing its arrays one after another.

    Args:
      folder: the folder for ``checkpoint_<step>``.
      step: its train step.
      parameters: the arrays by T5X's names, without ``target/``.

    Returns:
      Its folder.
    """
    import orbax.checkpoint as ocp
    from flax import traverse_util

    flat: dict[str, Any] = {f"{TARGET}{name}": array for name, array in parameters.items()}
    flat["state/step"] = LazyArray((), np.int32, lambda: np.asarray(step, np.int32))
    tree = traverse_util.unflatten_dict(flat, sep="/")
    handlers = ocp.type_handlers.create_type_handler_registry((LazyArray, _handler()))
    absl_logger = logging.getLogger("absl")
    level = absl_logger.level
    absl_logger.setLevel(logging.ERROR)  # it warns that these are not JAX arrays
    try:
        state = ocp.PyTreeCheckpointHandler(use_ocdbt=True, type_handler_registry=handlers)
        with ocp.CheckpointManager(
            folder,
            options=ocp.CheckpointManagerOptions(step_prefix="checkpoint", enable_async_checkpointing=False),
            item_handlers={_STATE: state},
        ) as manager:
            manager.save(step, args=ocp.args.Composite(**{_STATE: ocp.args.PyTreeSave(tree)}), force=True)
            manager.wait_until_finished()
    finally:
        absl_logger.setLevel(level)
    return folder / f"checkpoint_{step}"


@functools.cache
def _handler() -> Any:
    """Returns the handler that gives orbax the data of a :class:`LazyArray`; the files are those of NumPy arrays."""
    import orbax.checkpoint as ocp

    class LazyArrayHandler(ocp.type_handlers.NumpyHandler):  # type: ignore[misc]
        async def serialize(
            self, values: Sequence[LazyArray], infos: Sequence[Any], args: Sequence[Any] | None = None
        ) -> Sequence[Any]:
            options: Iterable[Any] = args or [ocp.SaveArgs()] * len(values)
            for value, info, option in zip(values, infos, options, strict=True):
                for future in await super().serialize([value.make()], [info], [option]):
                    future.result()  # so that one array is in memory at a time
            return []

    return LazyArrayHandler(deepcopy_host_arrays=False)
