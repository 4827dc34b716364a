"""GIN08: quoted numbers, booleans, None and tuples, and lists where T5X counts."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.gin.program import Binding, MacroBinding
from t5x_harness.gin.values import format_value
from t5x_harness.lint.edits import set_literal
from t5x_harness.lint.rule import Context, finds
from t5x_harness.lint.rules.numbers import COUNTS, LENGTHS, read_as
from t5x_harness.spec import Edit, Severity

_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "__main__.train": ("random_seed",),
    "t5x.utils.DatasetConfig": ("seed",),
    "t5x.utils.SaveCheckpointConfig": ("keep",),
    "t5x.utils.create_learning_rate_scheduler": ("base_learning_rate", "warmup_steps", "decay_factor"),
    "t5x.models.EncoderDecoderModel": ("z_loss", "label_smoothing"),
    "t5x.models.DecoderOnlyModel": ("z_loss", "label_smoothing"),
    "t5x.adafactor.Adafactor": ("weight_decay_rate", "beta1", "global_norm_clip_threshold", "clipping_threshold"),
}
_COUNTED = {target: names for target, names in COUNTS.items() if not target.startswith("t5x.examples.")}
"""Counts that T5X calculates with; some sizes of its models may be lists."""
_FLAGS: Mapping[str, tuple[str, ...]] = {"t5x.utils.DatasetConfig": ("shuffle",)}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9_]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MOST = 1000
"""Characters of a text that is read as a literal."""

_NEEDED: Mapping[type, str] = {
    bool: "a boolean is needed",
    int: "a number is needed",
    float: "a number is needed",
    tuple: "a tuple or list is needed",
    list: "a tuple or list is needed",
    dict: "a dict is needed",
    type(None): "None is written without quotes",
}
_HEAD = examples.head("pretrain")


GIN08 = Mistake(
    "GIN08",
    "string or list where a number, boolean, None, tuple or dict is needed",
    why=(
        "A quoted value is a string. TRAIN_STEPS = '100' fails with `'<' not supported between instances of 'str' and "
        "'int'`, after the model was built and restored; 'False' does not fail at all, because a string that is not "
        "empty counts as true. A list for a number fails as late. A value is judged by what T5X and its libraries "
        "take, and by what included files give the same parameter."
    ),
    later=(
        "A batch size has to be a whole number from 1 up: T5X computes with it after it built the datasets, and ends "
        "with `not all arguments converted`."
    ),
    bad=training("BATCH_SIZE = '16'", at="BATCH_SIZE = '16'"),
    good=training("BATCH_SIZE = 16"),
)


@finds(GIN08)
def quoted_value(context: Context) -> Iterator[Found]:
    """Finds each value that is surely meant to be of another type: a string, or a list for a count."""
    seen: set[tuple[str, str, str]] = set()
    for binding in context.program.final_bindings:
        given = context.program.resolve(binding)
        if given.key in seen:
            continue
        if isinstance(given.value, str) and (kind := _needed(context, binding, given)) is not None:
            seen.add(given.key)
            yield Found(
                f"{given} = {given.value!r} is a string, and {_NEEDED[kind]}{read_as(binding, given)}",
                given,
                _without_quotes(given, kind),
                severity=Severity.ERROR if _is_of_t5x(binding) else Severity.WARNING,
                edits=_unquoted(context, given),
            )
        elif isinstance(given.value, (list, tuple, dict)) and given.value and _is_count(binding):
            seen.add(given.key)
            yield Found(
                f"{given} = {format_value(given.value)} is a {type(given.value).__name__}, and a number is needed"
                f"{read_as(binding, given)}",
                given,
                "give a number",
            )
        elif binding.param in LENGTHS.get(binding.target, ()) and isinstance(given.value, dict):
            seen.add(given.key)
            yield from _lengths(binding, given)


def _lengths(binding: Binding, given: Binding | MacroBinding) -> Iterator[Found]:
    """Yields a finding for each feature length that is a string."""
    for feature, length in given.value.items():
        if isinstance(length, str):
            plain = _NUMBER.fullmatch(length.strip()) is not None
            yield Found(
                f"the length of {feature} in {given} is the string {length!r}, and a number is needed"
                f"{read_as(binding, given)}",
                given,
                f"write {feature!r}: {length.strip()}" if plain else "give a number",
            )


def _is_count(binding: Binding) -> bool:
    return binding.param in _COUNTED.get(binding.target, ())


def _is_of_t5x(binding: Binding) -> bool:
    return binding.target.split(".")[0] in ("t5x", "__main__")


def _needed(context: Context, binding: Binding, given: Binding | MacroBinding) -> type | None:
    """Returns the type that a text should have; None if a text may be right."""
    if binding.param in (*COUNTS.get(binding.target, ()), *_NUMBERS.get(binding.target, ())):
        return int
    if binding.param in LENGTHS.get(binding.target, ()):
        return dict
    written = _literal(given.value)
    if written is _NOT_A_LITERAL:
        return None
    known = context.snapshot.find(binding.target)
    if known is None or known.parameters is None or binding.param not in known.parameters:
        return None
    if binding.param in _FLAGS.get(binding.target, ()):
        return bool
    default = known.defaults.get(binding.param)
    if written is None:
        return None if isinstance(default, str) else type(None)
    others = [default, *(other.value for other in _others(context, given))]
    kinds = {_kind(value) for value in others if value is not None} - {None}
    kind = _kind(written)
    if not kinds and kind in (list, dict) and _is_of_t5x(binding):  # the default is None or an object
        return kind
    if kinds == {bool} and written in (0, 1):
        return bool
    return kind if kinds == {kind} else None


def _others(context: Context, given: Binding | MacroBinding) -> Iterator[Binding | MacroBinding]:
    """Yields the statements that give the same parameter or macro a value and are overridden."""
    for statement in context.program.statements:
        if isinstance(statement, (Binding, MacroBinding)) and statement.key == given.key and statement is not given:
            yield statement


def _kind(value: Any) -> type | None:
    """Returns the type of a literal, one for all numbers and one for lists and tuples; None for anything else."""
    if isinstance(value, bool):
        return bool
    if isinstance(value, (int, float)):
        return int
    if isinstance(value, (list, tuple)):
        return list
    return type(value) if isinstance(value, (str, dict)) else None


_NOT_A_LITERAL = object()


@functools.lru_cache(maxsize=1024)
def _literal(text: str) -> Any:
    """Returns the number, boolean, None, tuple, list or dict that a text spells."""
    try:
        value = ast.literal_eval(text.strip()) if len(text) <= _MOST else text
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return _NOT_A_LITERAL
    return value if value is None or _kind(value) in (bool, int, list, dict) else _NOT_A_LITERAL


def _without_quotes(given: Binding | MacroBinding, kind: type) -> str:
    text = given.value.strip()
    if _literal(text) is not _NOT_A_LITERAL:
        return f"take the quotes away: {given} = {text}"
    return f"give {_NEEDED[kind].removesuffix(' is needed')}"


def _unquoted(context: Context, given: Binding | MacroBinding) -> tuple[Edit, ...]:
    text = given.value.strip()
    is_plain = text in ("True", "False", "None") or _NUMBER.fullmatch(text) is not None
    return set_literal(context.program, given.location, given.value, text) if is_plain else ()
