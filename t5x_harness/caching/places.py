"""A task's folder in the cache: what lies in it, and that one process writes it at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from t5x_harness.caching.request import CacheError
from t5x_harness.system.buckets import is_remote

COMPLETED = "COMPLETED"
"""SeqIO takes a folder with this file for a cache."""

STANDINS = "stand-ins.json"
"""What was generated of the examples in a cache that is of no use for training."""

PARTS = ".parts"
"""What is written so far, for the run that goes on with it."""

_WRITER = ".writer.json"


@contextlib.contextmanager
def alone_in(folder: str) -> Iterator[None]:
    """Makes a folder, and keeps other processes from caching into it.

    Locally the lock ends with this process, however that ends. A bucket has no locks: there a file names the writer,
    and one of this machine whose process is gone does not count.

    Raises:
      CacheError: another process writes it, or it cannot be made.
    """
    try:
        tf.io.gfile.makedirs(folder)
    except (tf.errors.OpError, OSError) as error:
        raise CacheError(f"{folder} cannot be written: {getattr(error, 'message', error)}") from None
    with _marked(folder) if is_remote(folder) else _locked(folder):
        yield


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CacheError(f"another process is caching into {folder}: wait for it") from None
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _marked(folder: str) -> Iterator[None]:
    path, own = f"{folder}/{_WRITER}", {"host": platform.node(), "process": os.getpid()}
    for marking in (True, False):  # written, and read again: of two that begin at once, one finds the other's name
        other = read_json(path)
        if other and other != own and not _has_ended(other):
            raise CacheError(
                f"process {other['process']} of {other['host']} is caching into {folder}: wait for it, or, if it has "
                f"ended, remove {path}"
            )
        if marking:
            write_json(path, own)
    try:
        yield
    finally:
        with contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(path)


def _has_ended(writer: Mapping[str, Any]) -> bool:
    if writer["host"] != platform.node():
        return False
    try:
        os.kill(writer["process"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # another user's
        return False
    return False


def read_json(path: str) -> Any:
    """Returns what a file of JSON holds; None where there is no such file."""
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path) as file:
        return json.load(file)


def write_json(path: str, value: Any) -> None:
    """Writes a file of JSON, which is there as a whole or not at all."""
    with tf.io.gfile.GFile(f"{path}.new", "w") as file:
        file.write(json.dumps(value, sort_keys=True, indent=2) + "\n")
    tf.io.gfile.rename(f"{path}.new", path, overwrite=True)


def remove(folder: str) -> None:
    """Removes a folder, if it is there."""
    if tf.io.gfile.exists(folder):
        tf.io.gfile.rmtree(folder)


def empty(folder: str) -> None:
    """Removes what a cache consists of, and what is left of older ones; the writer's own file stays."""
    names = tf.io.gfile.listdir(folder)
    for name in sorted(names, key=lambda name: name != COMPLETED):  # first what says that the rest is whole
        path = f"{folder}/{name.rstrip('/')}"
        if name.startswith(_WRITER):
            continue
        tf.io.gfile.rmtree(path) if tf.io.gfile.isdir(path) else tf.io.gfile.remove(path)
