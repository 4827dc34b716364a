"""AutoGraph's conversions of functions, each of which is made once and kept for later processes.

TensorFlow rewrites the source of every Python function that it traces for an input pipeline, and keeps the result by
the function's code for as long as the process lives. That takes a run seconds, for functions of SeqIO and of the user
that are the same in the next one. Here, conversions are files in the compile cache. They are valid as long as the file
of the function, TensorFlow and Python stay the same.

AutoGraph also writes a file for debuggers for each function that it converts. A conversion that is kept has none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import marshal
import os
import pickle
import secrets
import socket
import sys
import tempfile
import threading
import time
import types
from pathlib import Path
from typing import Any

from t5x_harness.runtime.compile_cache import FOLDER
from t5x_harness.system.first_process import is_first
from t5x_harness.system.own_folders import foreign_file, foreign_folder

_CONVERTING_SECONDS = 5.0
"""How long a process waits for a conversion that another one makes, before it makes one itself."""

_LOOK_SECONDS = 0.005


def keep_conversions() -> bool:
    """Makes AutoGraph take kept conversions from now on, and keep those that it makes.

    Nothing is converted or traced here, so that TensorFlow's runtime, which would not survive a fork, is not started.

    Returns:
      Whether this TensorFlow's AutoGraph is built such that this is possible.
    """
    try:
        from tensorflow.python.autograph.impl import api
        from tensorflow.python.autograph.pyct import loader, transpiler

        conversions = Conversions(api._TRANSPILER, transpiler._PythonFnFactory, loader)
    except (ImportError, AttributeError):
        return False
    conversions.install()
    return True


@dataclasses.dataclass(frozen=True)
class KeptConversion:
    """The conversion of a function, for any process with the same function; it can be pickled.

    Attributes:
      name: the name of the converted function.
      code: the marshaled code of the module that defines it.
      source_map: AutoGraph's map from locations in that module to the original ones.
    """

    name: str
    code: bytes
    source_map: Any


class Conversions:
    """The conversions that this process holds and those that are kept; AutoGraph has no public interface for them.

    Args:
      transpiler: AutoGraph's transpiler.
      factory_class: the class of the conversions that it holds, which bind a function's code to the function.
      loader: AutoGraph's module that loads generated source.
    """

    def __init__(self, transpiler: Any, factory_class: Any, loader: Any) -> None:
        self._transpiler = transpiler
        self._held = transpiler._cache
        self._convert = transpiler.transform_function
        self._factory_class = factory_class
        self._loader = loader
        self._lock = threading.RLock()
        self._code: dict[str, types.CodeType] = {}

    def install(self) -> None:
        """Puts this before AutoGraph's own conversion."""
        if not isinstance(getattr(self._convert, "__self__", None), Conversions):  # it is not there yet
            self._transpiler.transform_function = self.transform

    def transform(self, function: Any, context: Any) -> Any:
        """Converts a function as AutoGraph does; see its ``transform_function``."""
        options = self._transpiler.get_caching_key(context)
        if not self._held.has(function, options) and (place := place_of(function.__code__, options.as_tuple())):
            with self._lock, socket.socket(socket.AF_UNIX) as sign:
                end = time.monotonic() + _CONVERTING_SECONDS
                while (kept := load(place)) is None and not is_first(sign, place.name) and time.monotonic() < end:
                    time.sleep(_LOOK_SECONDS)
                if kept := kept or load(place):  # another process may have made it in the meantime
                    self._hold(function, options, kept)
                else:
                    return self._convert_and_keep(function, context, options, place)
        return self._convert(function, context)

    def _convert_and_keep(self, function: Any, context: Any, options: Any, place: Path) -> Any:
        before = self._loader.load_source
        self._loader.load_source = self._load_source
        try:
            made = self._convert(function, context)
        finally:
            self._loader.load_source = before
        factory = self._held[function][options]
        code = marshal.dumps(self._code.pop(factory.module.__name__))
        store(place, KeptConversion(factory._name, code, factory.source_map))
        return made

    def _hold(self, function: Any, options: Any, kept: KeptConversion) -> None:
        """Lets AutoGraph find a conversion that was made elsewhere."""
        factory = self._factory_class(kept.name, function.__code__.co_freevars, self._transpiler.get_extra_locals())
        factory.module = _module_of(marshal.loads(kept.code))
        factory.source_map = kept.source_map
        [outer] = [value for name, value in vars(factory.module).items() if name.startswith("outer_factory")]
        factory._unbound_factory = outer()
        self._held[function][options] = factory

    def _load_source(self, source: str, *_: Any, **__: Any) -> tuple[types.ModuleType, str]:
        """Loads a module as AutoGraph's ``load_source`` does, but without a file."""
        file = f"__autograph_generated_{os.getpid()}_{secrets.token_hex(4)}.py"  # unique, as conversions are kept
        code = compile(source, file, "exec", dont_inherit=True)
        module = _module_of(code)
        self._code[module.__name__] = code
        return module, file


def _module_of(code: types.CodeType) -> types.ModuleType:
    module = types.ModuleType(code.co_filename.removesuffix(".py"))
    module.__file__ = code.co_filename
    exec(code, vars(module))
    sys.modules[module.__name__] = module
    return module


def load(place: Path) -> KeptConversion | None:
    """Loads a conversion; returns None if there is none, or none that can be used."""
    try:
        with place.open("rb") as file:
            # In any format, conversions are code, so anyone who can write the file can run any code here.
            if foreign_file(os.fstat(file.fileno())):
                return None
            found = pickle.load(file)
    except Exception:  # the file does not exist or is damaged, and pickle does not document its exceptions
        return None
    return found if isinstance(found, KeptConversion) else None


def store(place: Path, conversion: KeptConversion) -> None:
    """Stores a conversion."""
    with contextlib.suppress(OSError):  # the next process converts it again
        descriptor, name = tempfile.mkstemp(dir=place.parent, suffix="-cache")  # is trimmed as if it were an entry
        try:
            with os.fdopen(descriptor, "wb") as file:
                pickle.dump(conversion, file)
            os.replace(name, place)
        except OSError:  # the disk is full
            os.unlink(name)


def place_of(code: types.CodeType, options: tuple[Any, ...]) -> Path | None:
    """Returns the file of a function's conversion in the harness's own compile cache, which trims it like an entry.

    Args:
      code: the function's code.
      options: the options of the conversion.

    Returns:
      None if JAX uses another cache, if other users may write to it, or if the function is not in a file.
    """
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR", "")
    if not folder or not _is_own(folder):
        return None
    try:
        state = os.stat(code.co_filename)
    except OSError:
        return None
    # Lambdas of one line differ in their columns.
    function = (code.co_filename, state.st_mtime_ns, state.st_size, code.co_qualname, tuple(code.co_positions()))
    facts = repr((2, sys.version, _autograph(), function, code.co_freevars, options))
    return Path(folder, f"autograph-{hashlib.sha256(facts.encode()).hexdigest()}-cache")


def _is_own(folder: str) -> bool:
    """Returns whether a folder is a cache of the harness that only this user can change."""
    path = Path(folder)
    return path.parent.name == FOLDER and path.is_dir() and not foreign_folder(path.resolve())


@functools.cache
def _autograph() -> tuple[Any, ...]:
    """Returns what distinguishes AutoGraphs."""
    import tensorflow
    from tensorflow.python.autograph.pyct import transpiler

    state = os.stat(transpiler.__file__)
    return tensorflow.__version__, state.st_mtime_ns, state.st_size
