"""AutoGraph's conversions of SeqIO's own functions, and of the embedded T5X's, made once before any run.

TensorFlow rewrites the source of every Python function that it traces for an input pipeline and keeps the result by
the function's code. SeqIO's functions are the same in every run, and rewriting them takes seconds in each; a run that
is forked from a process that holds the rewritten ones takes them from there. Nothing is traced: TensorFlow's runtime,
which would not survive the fork, stays untouched.
"""

from __future__ import annotations

import importlib
import inspect
import tempfile
import types
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["SEQIO_FUNCTIONS", "T5X_FUNCTIONS", "convert"]

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

T5X_FUNCTIONS = ("t5x._driver.chunks:TaskInference._infer.<locals>.<lambda>",)
"""Likewise of the embedded T5X; an installed one has others."""


def convert(names: Iterable[str] = SEQIO_FUNCTIONS) -> int:
    """Converts functions as ``tf.data`` would have them converted, and forgets the files made for it.

    Args:
      names: ``module:qualified name`` of each; a name ending in ``<lambda>`` stands for every lambda of its function.

    Returns:
      How many functions are converted; 0 with a TensorFlow whose AutoGraph is built otherwise.
    """
    try:
        from tensorflow.python.autograph.core import converter
        from tensorflow.python.autograph.impl import api

        transpiler = api._TRANSPILER
        # What tf.data asks for.  AutoGraph looks a conversion up by its options, too.
        options = converter.ConversionOptions(recursive=True, user_requested=False, optional_features=None)
        context = converter.ProgramContext(options)
    except (ImportError, AttributeError, TypeError):
        return 0  # what is no public interface may change; then every run converts for itself
    done = 0
    # The files are for debuggers. AutoGraph deletes them when the interpreter ends in order, which a zygote does not.
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        try:
            for function in (found for name in names for found in _functions(name)):
                done += _is_converted(transpiler, function, context)
        finally:
            tempfile.tempdir = before
    return done


def _is_converted(transpiler: Any, function: types.FunctionType, context: Any) -> bool:
    try:
        transpiler.transform(function, context)
    except Exception:  # AutoGraph raises many kinds for what it cannot convert, and the run will do as it does then
        return False
    return True


def _functions(name: str) -> Iterator[types.FunctionType]:
    """The functions of a name, with empty closures: their code is all that counts."""
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
