"""The dataset item of a checkpoint in orbax layout."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath
from t5x._checkpoints.iterators import load_iterator, save_iterator
from t5x._shown_as import shown_as


@shown_as("t5x.checkpoints")  # orbax writes this name into every checkpoint
class DatasetCheckpointHandler(ocp.CheckpointHandler):
    """Keeps the place of an input pipeline.

    Args:
        checkpoint_filename: what the names of the files begin with.
        should_write_dataset_ckpt: whether this process keeps anything.
    """

    def __init__(self, checkpoint_filename: str, should_write_dataset_ckpt: bool):
        self._checkpoint_filename = checkpoint_filename
        self._should_write_dataset_ckpt = should_write_dataset_ckpt

    def save(self, directory: epath.Path, args: DatasetArgs) -> None:
        """Writes the place of ``args.item``.

        Raises:
            ValueError: there is no iterator.
        """
        if not self._should_write_dataset_ckpt:
            return
        if args.item is None:
            raise ValueError(f"The dataset state cannot be saved to {directory}: DatasetArgs holds no iterator")
        folder = self._own_folder(directory)
        if folder != directory:
            folder.mkdir(parents=False, exist_ok=False)
        save_iterator(args.item, folder / self._checkpoint_filename)

    def restore(self, directory: epath.Path, args: DatasetArgs | None = None) -> Any:
        """Moves ``args.item`` to the place that was written, and returns it.

        Raises:
            ValueError: there is no iterator, or nothing was written.
        """
        if not self._should_write_dataset_ckpt:
            return None
        if args is None or args.item is None:
            raise ValueError(f"The dataset state of {directory} cannot be restored: DatasetArgs holds no iterator")
        load_iterator(args.item, self._own_folder(directory) / self._checkpoint_filename)
        return args.item

    def _own_folder(self, directory: epath.Path) -> epath.Path:
        if jax.process_count() == 1:
            return directory
        return directory / f"process_{jax.process_index()}-of-{jax.process_count()}"


@ocp.args.register_with_handler(DatasetCheckpointHandler, for_save=True, for_restore=True)
@shown_as("t5x.checkpoints")
@dataclasses.dataclass
class DatasetArgs(ocp.args.CheckpointArgs):
    """What to save or restore.

    Attributes:
        item: a ``tf.data`` iterator or one of clu.
    """

    item: Any = None
