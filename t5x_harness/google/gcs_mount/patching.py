"""``/gcs`` in a Python process of a machine that lets nobody mount: the last resort.

Python's own functions that take paths are replaced for good by ones that look into the store. Reached are ``open``,
``os`` and what is written on them (``pathlib``, ``shutil``, ``glob``, numpy's files, ``etils.epath``), TensorFlow's
``tf.io.gfile``, ``TFRecordWriter``, ``tf.summary``, ``tf.data`` readers and ``tf.io.read_file``, and tensorstore's
``open`` and ``KvStore.open``: what training jobs use. Not reached is what else opens files in native code
(``tf.train.Checkpoint``, paths generated in a ``tf.function``), and functions that another module took before this was
called (``from os import stat``).
"""

from __future__ import annotations

import builtins
import functools
import io
import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from t5x_harness.google.gcs_mount.namespace import GCS
from t5x_harness.google.gcs_mount.rewriting import buckets_folder
from t5x_harness.system.after_import import after_import
from t5x_harness.upstream.tensorflow import NATIVE_FILES, OPERATIONS_ON_PATHS

# Functions of os by how many of their first arguments are paths.
_ONE_PATH = (
    "open stat lstat listdir scandir mkdir rmdir remove unlink access chmod chown utime truncate readlink statvfs "
    "chdir getxattr setxattr listxattr removexattr"
).split()
_TWO_PATHS = ("rename", "replace", "link")

_Map = Callable[[Any], Any]


def patch(root: str | os.PathLike[str]) -> None:
    """Has this process find the store's buckets at ``/gcs``; a later call names another store."""
    to_real = functools.partial(_to_real, buckets_folder(root))
    builtins.open = io.open = _wrapped(io.open, to_real, paths=1)
    for name in _ONE_PATH:
        setattr(os, name, _wrapped(getattr(os, name), to_real, paths=1))
    for name in _TWO_PATHS:
        setattr(os, name, _wrapped(getattr(os, name), to_real, paths=2))
    # What os and shutil look for in these sets is whether a function takes descriptors.
    for names in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        names.update(getattr(os, f.__name__) for f in list(names) if f.__name__ in _ONE_PATH + list(_TWO_PATHS))
    after_import("tensorflow.python.util.compat", functools.partial(_patch_tensorflow, to_real))
    after_import(NATIVE_FILES, functools.partial(_patch_glob, to_real))
    after_import("tensorflow.python.lib.io.tf_record", functools.partial(_patch_record_writer, to_real))
    for module in OPERATIONS_ON_PATHS:
        after_import(module, functools.partial(_patch_operations, to_real))
    after_import("tensorstore", functools.partial(_patch_tensorstore, to_real))


def _to_real(folder: str, path: Any) -> Any:
    """Returns a path in the store for one below ``/gcs``; every other value as it is."""
    plain = os.fspath(path) if isinstance(path, os.PathLike) else path
    if isinstance(plain, str) and (plain == GCS or plain.startswith(f"{GCS}/")):
        return folder + plain[len(GCS) :]
    if isinstance(plain, bytes) and (plain == GCS.encode() or plain.startswith(f"{GCS}/".encode())):
        return os.fsencode(folder) + plain[len(GCS) :]
    return path


def _wrapped(function: Callable[..., Any], to_real: _Map, *, paths: int) -> Callable[..., Any]:
    original = getattr(function, "__wrapped__", function)

    @functools.wraps(original)
    def with_gcs(*args: Any, **kwargs: Any) -> Any:
        named = {name: to_real(value) if name in _PATH_NAMES else value for name, value in kwargs.items()}
        return original(*map(to_real, args[:paths]), *args[paths:], **named)

    return with_gcs


_PATH_NAMES = frozenset({"path", "file", "src", "dst"})


def _patch_tensorflow(to_real: _Map, compat: ModuleType) -> None:
    # Every function of tf.io.gfile but glob passes its paths through one of these.
    for name in ("path_to_bytes", "path_to_str"):
        setattr(compat, name, _wrapped(getattr(compat, name), to_real, paths=1))


def _patch_record_writer(to_real: _Map, tf_record: Any) -> None:
    writer = tf_record.TFRecordWriter
    writer.__init__ = _wrapped(writer.__init__, to_real, paths=2)  # the first is the writer itself


def _patch_operations(to_real: _Map, module: ModuleType) -> None:
    for name in OPERATIONS_ON_PATHS[module.__name__]:
        setattr(module, name, _operation(getattr(module, name), to_real))


def _operation(function: Callable[..., Any], to_real: _Map) -> Callable[..., Any]:
    original = getattr(function, "without_gcs", function)  # TensorFlow has uses of its own for __wrapped__

    @functools.wraps(original)
    def with_gcs(*args: Any, **kwargs: Any) -> Any:
        real = {key: _in_tensor(to_real, value) for key, value in kwargs.items()}
        return original(*(_in_tensor(to_real, value) for value in args), **real)

    vars(with_gcs)["without_gcs"] = original
    return with_gcs


def _in_tensor(to_real: _Map, value: Any) -> Any:
    """Paths in the store for those in a list, an array or a tensor whose value is known; every other value as it is."""
    if isinstance(value, list | tuple):
        return [_in_tensor(to_real, part) for part in value]
    if hasattr(value, "numpy") and value.dtype.name == "string":
        value = value.numpy()  # bytes, or an array of bytes
    if hasattr(value, "tolist") and value.dtype.kind in "OSU":
        return _in_tensor(to_real, value.tolist())
    return to_real(value)


def _patch_glob(to_real: _Map, native: Any) -> None:
    native.GetMatchingFiles = _wrapped(native.GetMatchingFiles, to_real, paths=1)


def _patch_tensorstore(to_real: _Map, tensorstore: Any) -> None:
    def in_spec(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: in_spec(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [in_spec(part) for part in value]
        if isinstance(value, str) and value.startswith(f"file://{GCS}"):
            return "file://" + to_real(value.removeprefix("file://"))
        if isinstance(value, tensorstore.Spec | tensorstore.KvStore.Spec):
            return type(value)(in_spec(value.to_json()))
        return to_real(value)

    tensorstore.open = _wrapped(tensorstore.open, in_spec, paths=1)
    tensorstore.KvStore.open = staticmethod(_wrapped(tensorstore.KvStore.open, in_spec, paths=1))
