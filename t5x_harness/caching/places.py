"""A task's folder in the cache: its files, and a lock for the one process that writes it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from t5x_harness.buckets.folders import StorageError, folder_at
from t5x_harness.buckets.locks import Lock, locked
from t5x_harness.caching.request import CacheError

COMPLETED = "COMPLETED"
"""The file that makes a folder a cache for SeqIO."""

STANDINS = "stand-ins.json"
"""The list of stand-ins in a cache with generated examples, which is useless for training."""

PARTS = ".parts"
"""The folder of finished parts, with which an interrupted run is resumed."""

_WRITER = ".writer.json"


@contextlib.contextmanager
def alone_in(folder: str) -> Iterator[Lock]:
    """Makes a folder, and keeps other processes from caching into it during the block.

    Raises:
      CacheError: another process writes it, or it cannot be made.
    """

    def refusal(who: str) -> CacheError:
        return CacheError(f"another process is caching into {folder}: {who}. Wait for it")

    try:
        with contextlib.ExitStack() as stack:
            try:
                lock = stack.enter_context(locked(folder_at(folder), _WRITER, refusal))
            except OSError as error:
                raise CacheError(f"{folder} cannot be written: {error.strerror or error}") from None
            yield lock
    except StorageError as error:
        raise CacheError(f"{folder} cannot be written: {error}") from None


def read_json(path: str) -> Any:
    """Returns the content of a JSON file, or None if it does not exist."""
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path) as file:
        return json.load(file)


def write_json(path: str, value: Any) -> None:
    """Writes a JSON file atomically."""
    with tf.io.gfile.GFile(f"{path}.new", "w") as file:
        file.write(json.dumps(value, sort_keys=True, indent=2) + "\n")
    tf.io.gfile.rename(f"{path}.new", path, overwrite=True)


def remove(folder: str) -> None:
    """Removes a folder if it exists."""
    if tf.io.gfile.exists(folder):
        tf.io.gfile.rmtree(folder)


def empty(folder: str) -> None:
    """Removes the files of this and older caches, but not the file of the lock."""
    names = tf.io.gfile.listdir(folder)
    for name in sorted(names, key=lambda name: name != COMPLETED):  # first the file that marks the rest as complete
        path = f"{folder}/{name.rstrip('/')}"
        if name.startswith(_WRITER):
            continue
        tf.io.gfile.rmtree(path) if tf.io.gfile.isdir(path) else tf.io.gfile.remove(path)
