"""``/gcs`` in a Python process on a machine that allows no mounts: the last resort.

Python's own functions that take paths are permanently replaced by functions that look into the store. This covers what
training jobs use: ``open``, ``os`` and code on top of them (``pathlib``, ``shutil``, ``glob``, numpy's files,
``etils.epath``), TensorFlow's ``tf.io.gfile``, ``TFRecordWriter``, ``tf.summary``, ``tf.data`` readers and
``tf.io.read_file``, and tensorstore's ``open`` and ``KvStore.open``. It covers no other native code that opens files
(``tf.train.Checkpoint``, paths generated in a ``tf.function``), nor functions that another module imported before
(``from os import stat``).
"""

import builtins
import functools
import io
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from t5x_harness.google.gcs_mount.namespace import GCS, buckets_folder
from t5x_harness.system.after_import import after_import
from t5x_harness.upstream.tensorflow import NATIVE_FILES, OPERATIONS_ON_PATHS

# Functions of os, by the number of first arguments that are paths.
_ONE_PATH = (
    "open stat lstat listdir scandir mkdir rmdir remove unlink access chmod chown utime truncate readlink statvfs "
    "chdir getxattr setxattr listxattr removexattr"
).split()
_TWO_PATHS = ("rename", "replace", "link")

_Map = Callable[[Any], Any]


def patch(root: str | os.PathLike[str]) -> None:
    """Makes this process find the store's buckets at ``/gcs``; a later call replaces the store."""
    to_real = functools.partial(_to_real, buckets_folder(root))
    builtins.open = io.open = _wrapped(io.open, to_real, paths=1)
    _patch_functions(_ONE_PATH, to_real, os)
    _patch_functions(_TWO_PATHS, to_real, os, paths=2)
    # os and shutil look in these sets for functions that take descriptors.
    for names in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        names.update(getattr(os, f.__name__) for f in list(names) if f.__name__ in _ONE_PATH + list(_TWO_PATHS))
    # Every function of tf.io.gfile but glob passes its paths through one of these.
    passing = ("path_to_bytes", "path_to_str")
    after_import("tensorflow.python.util.compat", functools.partial(_patch_functions, passing, to_real))
    after_import(NATIVE_FILES, functools.partial(_patch_functions, ("GetMatchingFiles",), to_real))
    after_import(
        "tensorflow.python.lib.io.tf_record",
        lambda records: _patch_functions(
            ["__init__"], to_real, records.TFRecordWriter, paths=2
        ),  # after the writer itself
    )
    for module, operations in OPERATIONS_ON_PATHS.items():
        in_tensors = functools.partial(_in_tensor, to_real)
        after_import(module, functools.partial(_patch_functions, operations, in_tensors, paths=None))
    after_import("tensorstore", functools.partial(_patch_tensorstore, to_real))


def _to_real(folder: str, path: Any) -> Any:
    """Returns the path in the store for a path below ``/gcs``, and any other value unchanged."""
    plain = os.fspath(path) if isinstance(path, os.PathLike) else path
    if isinstance(plain, str) and (plain == GCS or plain.startswith(f"{GCS}/")):
        return folder + plain[len(GCS) :]
    if isinstance(plain, bytes) and (plain == GCS.encode() or plain.startswith(f"{GCS}/".encode())):
        return os.fsencode(folder) + plain[len(GCS) :]
    return path


def _wrapped(function: Callable[..., Any], to_real: _Map, *, paths: int | None) -> Callable[..., Any]:
    """Returns a function that maps its named arguments and its first ``paths``, or with None all, before a call."""
    original = getattr(function, "without_gcs", function)  # TensorFlow uses __wrapped__ for its own purposes

    @functools.wraps(original)
    def with_gcs(*args: Any, **kwargs: Any) -> Any:
        real = [to_real(value) for value in args[:paths]]
        return original(*real, *args[len(real) :], **{name: to_real(value) for name, value in kwargs.items()})

    vars(with_gcs)["without_gcs"] = original
    return with_gcs


def _patch_functions(names: Sequence[str], to_real: _Map, owner: Any, paths: int | None = 1) -> None:
    for name in names:
        setattr(owner, name, _wrapped(getattr(owner, name), to_real, paths=paths))


def _in_tensor(to_real: _Map, value: Any) -> Any:
    """Replaces the paths in a list, an array or a tensor whose value is known; returns other values unchanged."""
    if isinstance(value, list | tuple):
        return [_in_tensor(to_real, part) for part in value]
    if hasattr(value, "numpy") and value.dtype.name == "string":
        value = value.numpy()  # bytes, or an array of bytes
    if hasattr(value, "tolist") and value.dtype.kind in "OSU":
        return _in_tensor(to_real, value.tolist())
    return to_real(value)


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
