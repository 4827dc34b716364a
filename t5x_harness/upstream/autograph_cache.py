"""Conversions of functions, kept beside compiled programs for the sessions and jobs that come.

They are good for as long as the files of the functions, TensorFlow and Python are the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
import tempfile
import types
from collections.abc import Sequence
from pathlib import Path

from t5x_harness.runtime.compile_cache import FOLDER
from t5x_harness.system.ownership import foreign_file, foreign_folder
from t5x_harness.upstream.autograph import SEQIO_FUNCTIONS, AutoGraph, ConvertedFunction, functions_of

_FORMAT = 1


def adopt(_seqio: types.ModuleType) -> None:
    """Gives AutoGraph the stored conversions of SeqIO's functions once SeqIO is imported."""
    functions = functions_of(SEQIO_FUNCTIONS)
    conversions, autograph = load(functions), AutoGraph.find()
    if conversions and autograph:
        autograph.keep_all(functions, conversions)


def load(functions: Sequence[types.FunctionType]) -> list[ConvertedFunction | None] | None:
    """Returns the conversions of functions, None for one that cannot be converted; None if they are not kept.

    Args:
      functions: all that were stored together, in the same order.
    """
    place = _place(functions)
    if place is None:
        return None
    try:
        with place.open("rb") as file:
            # What is kept is code, so anyone who can write it can run anything here, in whatever format it is.
            if foreign_file(os.fstat(file.fileno())):
                return None
            found = pickle.load(file)
    except Exception:  # it is not there, or not whole, and what pickle raises then is not documented
        return None
    return found if isinstance(found, list) and len(found) == len(functions) else None


def store(functions: Sequence[types.FunctionType], conversions: Sequence[ConvertedFunction | None]) -> None:
    """Keeps the conversions of functions, if there is a place for them."""
    place = _place(functions)
    if place is None:
        return
    with contextlib.suppress(OSError):  # the next session converts them again
        descriptor, name = tempfile.mkstemp(dir=place.parent, suffix="-cache")  # is trimmed as if it was an entry
        try:
            with os.fdopen(descriptor, "wb") as file:
                pickle.dump(list(conversions), file)
            os.replace(name, place)
        except OSError:  # the disk is full
            os.unlink(name)


def _place(functions: Sequence[types.FunctionType]) -> Path | None:
    """Returns the file, in the harness's own compile cache, where that is what JAX uses.

    It is trimmed along with the rest.

    None where there is no such cache, and where other users may write to it.
    """
    folder = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR", ""))
    if folder.parent.name != FOLDER or not folder.is_dir() or foreign_folder(folder.resolve()):
        return None
    try:
        import tensorflow
        from tensorflow.python.autograph.pyct import transpiler
    except ImportError:
        return None
    files = sorted({function.__code__.co_filename for function in functions} | {transpiler.__file__})
    states = [(file, state.st_mtime_ns, state.st_size) for file in files if (state := _state(file))]
    names = [(f.__module__, f.__qualname__, f.__code__.co_firstlineno) for f in functions]
    facts = repr((_FORMAT, sys.version, tensorflow.__version__, states, names))
    return folder / f"autograph-{hashlib.sha256(facts.encode()).hexdigest()}-cache"


def _state(file: str) -> os.stat_result | None:
    try:
        return os.stat(file)
    except OSError:
        return None
