"""Stores conversions of functions in the compile cache, for later sessions and jobs.

They are valid as long as the files of the functions, TensorFlow and Python stay the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
import tempfile
import types
from collections.abc import Iterable, Sequence
from pathlib import Path

from t5x_harness.runtime.compile_cache import FOLDER
from t5x_harness.system.own_folders import foreign_file, foreign_folder
from t5x_harness.upstream.autograph import SEQIO_FUNCTIONS, AutoGraph, ConvertedFunction, functions_of

_FORMAT = 1


def convert_or_load(names: Iterable[str]) -> int:
    """Gives AutoGraph the conversions of functions: stored ones, or else new ones, which are stored.

    Args:
      names: as :func:`~t5x_harness.upstream.autograph.convert` takes them.

    Returns:
      How many functions are converted; 0 with a TensorFlow whose AutoGraph is built otherwise.
    """
    functions, autograph = functions_of(names), AutoGraph.find()
    if autograph is None or not functions:
        return 0
    if (stored := load(functions)) is not None:
        return autograph.keep_all(functions, stored)
    made = [autograph.conversion(function) if autograph.converts(function) else None for function in functions]
    store(functions, made)
    return sum(conversion is not None for conversion in made)


def adopt(_seqio: types.ModuleType) -> None:
    """Gives AutoGraph the stored conversions of SeqIO's functions, if there are any, once SeqIO is imported."""
    functions = functions_of(SEQIO_FUNCTIONS)
    conversions, autograph = load(functions), AutoGraph.find()
    if conversions and autograph:
        autograph.keep_all(functions, conversions)


def load(functions: Sequence[types.FunctionType]) -> list[ConvertedFunction | None] | None:
    """Loads the conversions of functions; a function that cannot be converted has None in the list.

    Args:
      functions: all functions that were stored together, in the same order.

    Returns:
      None if there are no stored conversions.
    """
    place = _place(functions)
    if place is None:
        return None
    try:
        with place.open("rb") as file:
            # Whatever the format, conversions are code, so anyone who can write the file can run anything here.
            if foreign_file(os.fstat(file.fileno())):
                return None
            found = pickle.load(file)
    except Exception:  # the file does not exist or is damaged, and pickle does not document what it raises
        return None
    return found if isinstance(found, list) and len(found) == len(functions) else None


def store(functions: Sequence[types.FunctionType], conversions: Sequence[ConvertedFunction | None]) -> None:
    """Stores the conversions of functions, if there is a place for them."""
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
    """Returns the file in the harness's own compile cache, which trims it along with its other entries.

    Returns:
      None if JAX uses another cache, or if other users may write to it.
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
