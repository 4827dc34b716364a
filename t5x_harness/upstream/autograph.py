"""AutoGraph's conversions of SeqIO's own functions, and of the embedded T5X's, made once before any run.

TensorFlow rewrites the source of every Python function that it traces for an input pipeline and keeps the result by
the function's code. SeqIO's functions are the same in every run, and rewriting them takes seconds in each; a run that
is forked from a process that holds the rewritten ones takes them from there. Nothing is traced: TensorFlow's runtime,
which would not survive the fork, stays untouched.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import marshal
import os
import secrets
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

SEQIO_FUNCTIONS = (
    "dataclasses:is_dataclass",
    "seqio.feature_converters:EncDecFeatureConverter._convert_example",
    "seqio.feature_converters:LMFeatureConverter._convert_example",
    "seqio.feature_converters:_check_lengths.<locals>.<lambda>",
    "seqio.feature_converters:_check_lengths.<locals>._check_length",
    "seqio.feature_converters:non_padding_position",
    "seqio.dataset_providers:TFExampleDataSource.__init__.<locals>.parse_fn",
    "seqio.dataset_providers:TFExampleDataSource.__init__.<locals>.read_file_fn",
    "seqio.dataset_providers:TextLineDataSource.__init__.<locals>.read_file_fn",
    "seqio.preprocessors:_append_to_innermost_axis",
    "seqio.preprocessors:append_eos.<locals>.<lambda>",
    "seqio.preprocessors:append_eos.<locals>._maybe_add_eos",
    "seqio.preprocessors:append_eos_after_trim_impl",
    "seqio.preprocessors:tokenize_impl",
    "seqio.utils:_GrainMapFn.__call__.<locals>.<lambda>",
    "seqio.utils:_GrainMapFn._map_fn_with_special_kwargs",
    "seqio.utils:_GrainRandomMapFn.__call__.<locals>.map_fn",
    "seqio.utils:_GrainRandomMapFn._map_fn_with_special_kwargs",
    "seqio.utils:_pack_with_tf_ops.<locals>._write_packed_example",
    "seqio.utils:_pack_with_tf_ops.<locals>.pack_batch",
    "seqio.utils:_shift_right_by_one",
    "seqio.utils:_strip_packed_feature_key",
    "seqio.utils:add_kwargs_to_transform",
    "seqio.utils:make_autoregressive_inputs",
    "seqio.utils:trim_and_pack_dataset.<locals>.<lambda>",
    "seqio.utils:trim_and_pack_dataset.<locals>._set_shape",
    "seqio.utils:trim_and_pad_dataset.<locals>.<lambda>",
    "seqio.utils:trim_and_pad_dataset.<locals>._trim_and_pad",
    "seqio.utils:trim_dataset.<locals>.<lambda>",
    "seqio.utils:trim_dataset.<locals>._trim",
    "seqio.vocabularies:ByteVocabulary._encode_tf",
    "seqio.vocabularies:SentencePieceVocabulary._encode_tf",
    "seqio.vocabularies:Vocabulary.encode_tf",
    "tensorflow_text.python.ops.sentencepiece_tokenizer:SentencepieceTokenizer.tokenize",
)
"""As ``module:qualified name``, what nearly every pipeline has converted; a SeqIO without one of them converts less."""

T5X_FUNCTIONS = ("t5x._infer_chunks:TaskInference._infer.<locals>.<lambda>",)
"""Likewise of the embedded T5X; an installed one has others."""


def convert(names: Iterable[str] = SEQIO_FUNCTIONS) -> int:
    """Converts functions as ``tf.data`` would have them converted, but without AutoGraph's files for debuggers.

    Args:
      names: ``module:qualified name`` of each; a name ending in ``<lambda>`` stands for every lambda of its function.

    Returns:
      How many functions are converted; 0 with a TensorFlow whose AutoGraph is built otherwise.
    """
    autograph = AutoGraph.find()
    return sum(autograph.converts(function) for function in functions_of(names)) if autograph else 0


class AutoGraph:
    """What converts functions in this process and keeps their conversions, as far as no public interface says it.

    Args:
      transpiler: AutoGraph's own.
      context: the options to convert with; a conversion is kept by these options and the function's code.
      factory_class: of what is kept: it makes the conversion of a function from that of the function's code.
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
        """Returns the one of this process's TensorFlow.

        None where it is built otherwise, and every run converts for itself.
        """
        try:
            from tensorflow.python.autograph.core import converter
            from tensorflow.python.autograph.impl import api
            from tensorflow.python.autograph.pyct import loader, transpiler

            # What tf.data asks for.
            options = converter.ConversionOptions(recursive=True, user_requested=False, optional_features=None)
            return cls(api._TRANSPILER, converter.ProgramContext(options), transpiler._PythonFnFactory, loader)
        except (ImportError, AttributeError, TypeError):
            return None

    def converts(self, function: types.FunctionType) -> bool:
        """Converts a function, if it is not yet, and says whether that could be done."""
        before = self._loader.load_source
        self._loader.load_source = self._load
        try:
            self._transpiler.transform(function, self._context)
        except Exception:  # it raises many kinds for what it cannot convert, and the run will do as it does then
            return False
        finally:
            self._loader.load_source = before
        return True

    def conversion(self, function: types.FunctionType) -> ConvertedFunction:
        """Returns what this one made of a function."""
        factory = self._kept(function)[self._transpiler.get_caching_key(self._context)]
        code = marshal.dumps(self._code[factory.module.__name__])
        return ConvertedFunction(factory._name, code, factory.source_map)

    def keep(self, function: types.FunctionType, conversion: ConvertedFunction) -> None:
        """Keeps what was made of a function elsewhere."""
        factory = self._factory_class(
            conversion.name, function.__code__.co_freevars, self._transpiler.get_extra_locals()
        )
        factory.module = self._run(marshal.loads(conversion.code))
        factory.source_map = conversion.source_map
        [outer] = [value for name, value in vars(factory.module).items() if name.startswith("outer_factory")]
        factory._unbound_factory = outer()
        self._kept(function)[self._transpiler.get_caching_key(self._context)] = factory

    def keep_all(self, functions: Sequence[types.FunctionType], conversions: Sequence[ConvertedFunction | None]) -> int:
        """Keeps what was made of functions elsewhere, and says of how many something was."""
        made = 0
        for function, conversion in zip(functions, conversions, strict=True):
            if conversion is not None:
                self.keep(function, conversion)
                made += 1
        return made

    def _load(self, source: str, *_: Any, **__: Any) -> tuple[types.ModuleType, str]:
        """Loads a module as AutoGraph's ``load_source`` does, but for the file."""
        file = f"__autograph_generated_{os.getpid()}_{secrets.token_hex(4)}.py"  # conversions are kept: never the same
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
    """What AutoGraph made of a function, for any process that has the same function; pickle takes it.

    Attributes:
      name: of the function that it defines.
      code: of the module that defines it, marshalled.
      source_map: AutoGraph's own: by location in that module, the location that it came from.
    """

    name: str
    code: bytes
    source_map: Any


def functions_of(names: Iterable[str]) -> list[types.FunctionType]:
    """Returns the functions that these names stand for, as far as they are there.

    In the same order in every process.
    """
    return [found for name in names for found in _functions(name)]


def _functions(name: str) -> Iterator[types.FunctionType]:
    """Yields the functions of a name, with empty closures: their code is all that counts."""
    module_name, _, path = name.partition(":")
    outer, _, inner = path.partition(".<locals>.")
    try:
        module = importlib.import_module(module_name)
        found: Any = module
        for part in outer.split("."):
            found = getattr(found, part)
        code = inspect.unwrap(found).__code__
    except (ImportError, AttributeError):
        return
    codes = [c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == inner] if inner else [code]
    for each in codes:
        closure = tuple(types.CellType(None) for _ in each.co_freevars)
        yield types.FunctionType(each, vars(module), each.co_name, None, closure)
