"""AutoGraph's conversions of SeqIO's functions, and of the embedded T5X's, made once before any run.

TensorFlow rewrites the source of every Python function that it traces for an input pipeline, and keeps the result by
the function's code. SeqIO's functions are the same in every run, and rewriting them takes each run seconds. A run that
is forked from a process with the rewritten functions also has them. Nothing is traced here, so TensorFlow's runtime,
which would not survive the fork, is not started.

Conversions are stored in the compile cache, for later sessions and jobs. They are valid as long as the files of the
functions, TensorFlow and Python stay the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import inspect
import marshal
import operator
import os
import pickle
import secrets
import sys
import tempfile
import types
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.runtime.compile_cache import FOLDER
from t5x_harness.system.own_folders import foreign_file, foreign_folder

_CONVERTED = {
    "dataclasses": "is_dataclass",
    "seqio.feature_converters": (
        "EncDecFeatureConverter._convert_example LMFeatureConverter._convert_example "
        "_check_lengths.<locals>.<lambda> _check_lengths.<locals>._check_length non_padding_position"
    ),
    "seqio.dataset_providers": (
        "TFExampleDataSource.__init__.<locals>.parse_fn TFExampleDataSource.__init__.<locals>.read_file_fn "
        "TextLineDataSource.__init__.<locals>.read_file_fn"
    ),
    "seqio.preprocessors": (
        "_append_to_innermost_axis append_eos.<locals>.<lambda> append_eos.<locals>._maybe_add_eos "
        "append_eos_after_trim_impl tokenize_impl"
    ),
    "seqio.utils": (
        "_GrainMapFn.__call__.<locals>.<lambda> _GrainMapFn._map_fn_with_special_kwargs "
        "_GrainRandomMapFn.__call__.<locals>.map_fn _GrainRandomMapFn._map_fn_with_special_kwargs "
        "_pack_with_tf_ops.<locals>._write_packed_example _pack_with_tf_ops.<locals>.pack_batch _shift_right_by_one "
        "_strip_packed_feature_key add_kwargs_to_transform make_autoregressive_inputs "
        "trim_and_pack_dataset.<locals>.<lambda> trim_and_pack_dataset.<locals>._set_shape "
        "trim_and_pad_dataset.<locals>.<lambda> trim_and_pad_dataset.<locals>._trim_and_pad "
        "trim_dataset.<locals>.<lambda> trim_dataset.<locals>._trim"
    ),
    "seqio.vocabularies": "ByteVocabulary._encode_tf SentencePieceVocabulary._encode_tf Vocabulary.encode_tf",
    "tensorflow_text.python.ops.sentencepiece_tokenizer": "SentencepieceTokenizer.tokenize",
}
SEQIO_FUNCTIONS = tuple(f"{module}:{name}" for module, names in _CONVERTED.items() for name in names.split())
"""The functions that nearly every pipeline converts, as ``module:qualified name``; missing ones are skipped."""

T5X_FUNCTIONS = ("t5x._infer_chunks:TaskInference._infer.<locals>.<lambda>",)
"""The functions of the embedded T5X that pipelines convert; an installed T5X has other functions."""


def convert(names: Iterable[str] = SEQIO_FUNCTIONS) -> int:
    """Converts functions as ``tf.data`` would, but without AutoGraph's files for debuggers.

    Args:
      names: ``module:qualified name`` of each; a name ending in ``<lambda>`` stands for every lambda of its function.

    Returns:
      The number of converted functions; 0 with a TensorFlow whose AutoGraph is built otherwise.
    """
    autograph = AutoGraph.find()
    return sum(autograph.converts(function) for function in functions_of(names)) if autograph else 0


class AutoGraph:
    """AutoGraph's converter in this process, and its cache of conversions, which have no public interface.

    Args:
      transpiler: AutoGraph's transpiler.
      context: the options to convert with; these options and the function's code are the key in the cache.
      factory_class: the class of cached values, which bind the conversion of a function's code to the function.
      loader: AutoGraph's module that loads generated source.
    """

    def __init__(self, transpiler: Any, context: Any, factory_class: Any, loader: Any) -> None:
        self._transpiler = transpiler
        self._context = context
        self._factory_class = factory_class
        self._loader = loader
        self._code: dict[str, types.CodeType] = {}

    @classmethod
    def find(cls) -> AutoGraph | None:
        """Finds AutoGraph in this process's TensorFlow; returns None if it is built otherwise."""
        try:
            from tensorflow.python.autograph.core import converter
            from tensorflow.python.autograph.impl import api
            from tensorflow.python.autograph.pyct import loader, transpiler

            # The options of tf.data.
            options = converter.ConversionOptions(recursive=True, user_requested=False, optional_features=None)
            return cls(api._TRANSPILER, converter.ProgramContext(options), transpiler._PythonFnFactory, loader)
        except (ImportError, AttributeError, TypeError):
            return None

    def converts(self, function: types.FunctionType) -> bool:
        """Converts a function if it is not yet converted, and returns whether that is possible."""
        before = self._loader.load_source
        self._loader.load_source = self._load
        try:
            self._transpiler.transform(function, self._context)
        except Exception:  # of many types; the run then handles the function as it would without this
            return False
        finally:
            self._loader.load_source = before
        return True

    def conversion(self, function: types.FunctionType) -> ConvertedFunction:
        """Returns the conversion of a function that was converted here."""
        factory = self._kept(function)[self._transpiler.get_caching_key(self._context)]
        code = marshal.dumps(self._code[factory.module.__name__])
        return ConvertedFunction(factory._name, code, factory.source_map)

    def keep(self, function: types.FunctionType, conversion: ConvertedFunction) -> None:
        """Puts a conversion that was made elsewhere into the cache."""
        factory = self._factory_class(
            conversion.name, function.__code__.co_freevars, self._transpiler.get_extra_locals()
        )
        factory.module = self._run(marshal.loads(conversion.code))
        factory.source_map = conversion.source_map
        [outer] = [value for name, value in vars(factory.module).items() if name.startswith("outer_factory")]
        factory._unbound_factory = outer()
        self._kept(function)[self._transpiler.get_caching_key(self._context)] = factory

    def keep_all(self, functions: Sequence[types.FunctionType], conversions: Sequence[ConvertedFunction | None]) -> int:
        """Puts conversions that were made elsewhere into the cache, and returns their number."""
        for function, conversion in zip(functions, conversions, strict=True):
            if conversion is not None:
                self.keep(function, conversion)
        return sum(conversion is not None for conversion in conversions)

    def _load(self, source: str, *_: Any, **__: Any) -> tuple[types.ModuleType, str]:
        """Loads a module as AutoGraph's ``load_source`` does, but without a file."""
        file = f"__autograph_generated_{os.getpid()}_{secrets.token_hex(4)}.py"  # unique, as conversions are stored
        return self._run(compile(source, file, "exec", dont_inherit=True)), file

    def _run(self, code: types.CodeType) -> types.ModuleType:
        module = types.ModuleType(code.co_filename.removesuffix(".py"))
        module.__file__ = code.co_filename
        exec(code, vars(module))
        sys.modules[module.__name__] = module
        self._code[module.__name__] = code
        return module

    def _kept(self, function: types.FunctionType) -> Any:
        return self._transpiler._cache[function]


@dataclasses.dataclass(frozen=True)
class ConvertedFunction:
    """The conversion of a function, for any process with the same function; it can be pickled.

    Attributes:
      name: the name of the converted function.
      code: the marshaled code of the module that defines it.
      source_map: AutoGraph's map from locations in that module to the original ones.
    """

    name: str
    code: bytes
    source_map: Any


def functions_of(names: Iterable[str]) -> list[types.FunctionType]:
    """Finds the functions with these names, in the same order in every process; missing ones are skipped.

    Their closures are empty, as only their code counts.
    """
    functions = []
    for name in names:
        module_name, _, path = name.partition(":")
        outer, _, inner = path.partition(".<locals>.")
        try:
            module = importlib.import_module(module_name)
            code = inspect.unwrap(operator.attrgetter(outer)(module)).__code__
        except (ImportError, AttributeError):
            continue
        codes = [c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == inner] if inner else [code]
        for each in codes:
            closure = tuple(types.CellType(None) for _ in each.co_freevars)
            functions.append(types.FunctionType(each, vars(module), each.co_name, None, closure))
    return functions


def convert_or_load(names: Iterable[str]) -> int:
    """Gives AutoGraph the conversions of functions: stored ones, or else new ones, which it then stores.

    Args:
      names: the functions' names, in the form that :func:`~t5x_harness.upstream.autograph.convert` takes.

    Returns:
      The number of converted functions; 0 with a TensorFlow whose AutoGraph is built otherwise.
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
    """Gives AutoGraph the stored conversions of SeqIO's functions, if any, once SeqIO is imported."""
    functions = functions_of(SEQIO_FUNCTIONS)
    conversions, autograph = load(functions), AutoGraph.find()
    if conversions and autograph:
        autograph.keep_all(functions, conversions)


def load(functions: Sequence[types.FunctionType]) -> list[ConvertedFunction | None] | None:
    """Loads the conversions of functions; a function that cannot be converted has None in the list.

    Args:
      functions: all functions that were stored together, in the same order.

    Returns:
      The conversions; None if none are stored.
    """
    place = _place(functions)
    if place is None:
        return None
    try:
        with place.open("rb") as file:
            # In any format, conversions are code, so anyone who can write the file can run any code here.
            if foreign_file(os.fstat(file.fileno())):
                return None
            found = pickle.load(file)
    except Exception:  # the file does not exist or is damaged, and pickle does not document its exceptions
        return None
    return found if isinstance(found, list) and len(found) == len(functions) else None


def store(functions: Sequence[types.FunctionType], conversions: Sequence[ConvertedFunction | None]) -> None:
    """Stores the conversions of functions, if the compile cache has a place for them."""
    place = _place(functions)
    if place is None:
        return
    with contextlib.suppress(OSError):  # the next session converts them again
        descriptor, name = tempfile.mkstemp(dir=place.parent, suffix="-cache")  # is trimmed as if it were an entry
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
    states = [(file, os.stat(file).st_mtime_ns, os.stat(file).st_size) for file in files if os.path.exists(file)]
    names = [(f.__module__, f.__qualname__, f.__code__.co_firstlineno) for f in functions]
    facts = repr((1, sys.version, tensorflow.__version__, states, names))
    return folder / f"autograph-{hashlib.sha256(facts.encode()).hexdigest()}-cache"
