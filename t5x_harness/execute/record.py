"""A record of a training, line by line in a file, which is complete up to the moment at which the process dies."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from flax import traverse_util

from t5x_harness.execute.hosts import own_rows, whole
from t5x_harness.upstream.t5x import watch_batches

_BYTES = 8
"""The length of a digest. Two rows of a training have the same by chance about once in 2**64 / rows**2 trainings."""


class Observer(Protocol):
    """Is called at moments of a training."""

    def before_step(self, step: int) -> None:
        """Is called with each step before its batch is taken."""

    def before_eval(self, step: int) -> None:
        """Is called with the step of the state before it is evaluated."""

    def before_compiling(self) -> None:
        """Is called before the train step is compiled."""


class Recorder:
    """Records the batches and the states of a training.

    Each line of the file is a JSON object. ``{"life", "shard", "began", "state"}`` is the state that the trainer was
    given, with the number of the process and that of the part of the data that this host reads, ``{"step", "rows"}`` a
    batch that it took at this step, and ``{"reached", "state"}`` the state after a call of its train loop. ``rows`` has
    a digest of each example of the batch that this process holds, and ``state`` a digest and the Euclidean norm of each
    array.

    Args:
      file: the file, which is appended to, as a process that goes on with a training writes into the same one.
      observer: an object that is called at moments of the training; None for none.
      life: how many processes have begun this training, including this one.
    """

    def __init__(self, file: Path, observer: Observer | None = None, life: int = 1) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("a", encoding="utf-8", buffering=1)  # each line is written as it ends
        self._observer = observer
        self._life = life
        self._step = 0

    def watch(self, trainer_cls: Any) -> Callable[..., Any]:
        """Returns the same trainer, which is recorded if its loop is ``train(batch_iter, num_steps, start_step)``."""

        def make(*args: Any, **kwargs: Any) -> Any:
            trainer = trainer_cls(*args, **kwargs)
            if watch_batches(trainer, self._taken, self._before_batch):
                if self._observer is not None:
                    _observe(trainer, self._observer)
                train = trainer.train

                def recorded(*rest: Any, **options: Any) -> Any:
                    self._step = int(trainer.train_state.step)
                    summary = train(*rest, **options)
                    self._write({"reached": int(trainer.train_state.step), "state": digests(trainer.train_state)})
                    return summary

                trainer.train = recorded
            began, state = int(trainer.train_state.step), digests(trainer.train_state)
            self._write({"life": self._life, "shard": _shard_of(kwargs), "began": began, "state": state})
            return trainer

        return make

    def _before_batch(self) -> None:
        if self._observer is not None:
            self._observer.before_step(self._step)

    def _taken(self, batch: Mapping[str, Any]) -> None:
        self._write({"step": self._step, "rows": rows_of(batch)})
        self._step += 1

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")


def _shard_of(arguments: Mapping[str, Any]) -> int:
    """Returns the number of the part of the data that this host reads, given the arguments of a trainer."""
    partitioner = arguments.get("partitioner")
    return 0 if partitioner is None else int(partitioner.get_data_layout().shard_id)


def _observe(trainer: Any, observer: Observer) -> None:
    """Makes a trainer call the observer before it evaluates, and before it compiles its train step."""
    evaluate, compile_train = trainer.eval, trainer.compile_train

    def observed_eval(*args: Any, **kwargs: Any) -> Any:
        observer.before_eval(int(trainer.train_state.step))
        return evaluate(*args, **kwargs)

    def observed_compile(*args: Any, **kwargs: Any) -> Any:
        observer.before_compiling()
        return compile_train(*args, **kwargs)

    trainer.eval, trainer.compile_train = observed_eval, observed_compile


def rows_of(batch: Mapping[str, Any]) -> list[str]:
    """Returns a digest of each example of a batch, by its features in the order of their names.

    Args:
      batch: arrays of shape [examples, ...] by feature; global arrays count with the rows that this process holds.
    """
    parts = [own_rows(batch[name]) for name in sorted(batch)]
    return [_digest(part[row] for part in parts) for row in range(len(parts[0]) if parts else 0)]


def digests(state: Any) -> dict[str, list[Any]]:
    """Returns the digest and the Euclidean norm of each array of a train state, by its path.

    Args:
      state: a ``TrainState``. In a pod, all hosts must call this. A single whole number counts without its dtype and
        shape: T5X restores the step as a float32.
    """
    flat: dict[str, Any] = traverse_util.flatten_dict(dict(state.state_dict()), sep="/")
    values = {path: whole(value) for path, value in flat.items() if hasattr(value, "shape")}
    return {path: [_digest([_plain(value)]), _norm(value)] for path, value in values.items()}


def _digest(arrays: Any) -> str:
    digest = hashlib.blake2b(digest_size=_BYTES)
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _plain(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if value.size == 1 and value.dtype.kind in "iuf" and float(value.item()).is_integer():
        return np.array(int(value.item()), np.int64)
    return value


def _norm(value: np.ndarray[Any, Any]) -> float:
    if not np.issubdtype(value.dtype, np.number) and value.dtype.kind != "V":  # bfloat16 is of kind V
        return 0.0
    return float(np.linalg.norm(value.astype(np.float64).reshape(-1)))
