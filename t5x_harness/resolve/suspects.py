"""Finds the bindings that an exception is about: its text or the failing lines show their values or names."""

import dataclasses
import inspect
import linecache
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import gin

from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.gin.values import format_value
from t5x_harness.resolve.declared_types import is_scalar_as_declared, misfit, takes_none
from t5x_harness.resolve.exceptions import (
    FRONT,
    PYTHON,
    USER,
    causes,
    full_text,
    is_users,
    one_line,
    party_of,
    passed_through_t5x,
    root_cause,
)
from t5x_harness.spec import Location
from t5x_harness.upstream.gin import ConfigurableCall, calls_in

MOST = 3
"""The largest number of bindings that a message names."""

_CONVINCING = 6
"""The least weight at which a binding is reported as the place of the mistake, not only as a possible one."""

_LEAST = 4
"""The least weight at which a binding is named at all."""

_PLACE = 5
"""The least weight at which a finding may point to a binding's line; a short number may be in a text by chance."""

_NEAR = 3
"""The largest difference in weight between a convincing binding and the others that are named with it."""

_DEPTH = 12
"""The number of innermost frames that are searched for names of parameters."""

_BOUND = re.compile(r"(?:>=?|greater than(?: or equal to)?|at least) ?-?\d+|\brank \d+")
"""A number that an error says a value must reach, which is not the value; or the number of an array's dimensions."""

_COMMON = frozenset(
    {"self", "name", "value", "key", "path", "mode", "dtype", "config", "model", "module", "args", "kwargs"}
)
"""Parameter names that are on too many lines to be evidence."""

_DTYPES = frozenset({"float16", "bfloat16", "float32", "float64", "int8", "int32", "int64"})


@dataclasses.dataclass(frozen=True)
class Suspect:
    """A binding that an exception may be about.

    Attributes:
      key: the binding that holds the value, after following macros.
      shown: the binding as it is in the file, ``BATCH_SIZE = 12``, and its place.
      location: its line; None for a binding given with the run.
      weight: the strength of the evidence.
    """

    key: BindingKey
    shown: str
    location: Location | None
    weight: float

    @property
    def may_be_the_place(self) -> bool:
        """Whether the evidence is more than a number."""
        return self.weight >= _PLACE

    @property
    def is_convincing(self) -> bool:
        """Whether the binding is the likely place of the mistake."""
        return self.weight >= _CONVINCING


def calls(error: BaseException) -> list[ConfigurableCall]:
    """Returns the configurables that Gin was calling, innermost first."""
    found = [call for link in causes(error) for call in calls_in(full_text(link))]
    return list(dict.fromkeys(found))


def suspects(error: BaseException, config: GinConfig) -> list[Suspect]:
    """Returns up to :data:`MOST` bindings that an exception is about, the likeliest first."""
    weights, used_by = _weighed(error, config)
    ranked = _likeliest(weights)
    if ranked and weights[ranked[0]] >= _CONVINCING:
        ranked = [key for key in ranked if weights[key] >= weights[ranked[0]] - _NEAR]
    elif unfit := _likely_misfits(error, config):  # a value of the wrong type is stronger evidence than a number
        ranked = [*unfit, *(key for key in ranked if key not in unfit)]
        weights |= dict.fromkeys(unfit, _CONVINCING if len(unfit) == 1 else _PLACE)
    elif not ranked:  # without evidence, the user's code is likelier to be wrong than T5X's
        ranked = _users_code(config)
        weights |= dict.fromkeys(ranked, _PLACE)
    return [_suspect(key, used_by.get(key, key), weights[key], config) for key in ranked[:MOST]]


def misfits(config: GinConfig) -> dict[BindingKey, str]:
    """Returns the parameters whose bound value is not of their declared type, with this type as text."""
    found = {key: misfit(config, key) for key in config if not key.is_macro}
    return {key: hint for key, hint in found.items() if hint is not None}


def evident(error: BaseException, config: GinConfig) -> list[BindingKey]:
    """Returns the bindings that an exception's text or failing lines give evidence of, the likeliest first."""
    return _likeliest(_weighed(error, config)[0])


def refused_value(error: BaseException, config: GinConfig) -> BindingKey | None:
    """Returns the binding whose text an operation refused, such as an invalid pattern; None if there is none."""
    if not isinstance(root_cause(error), (ValueError, re.error)):
        return None
    evidence = _Evidence(error)
    owners = (config.owner(key) for key in config if not key.is_macro)
    return next((key for key in owners if config.is_of_user(key) and evidence.holds(config.value(key))), None)


def users_misfits(config: GinConfig) -> list[BindingKey]:
    """Returns the user's own bindings whose value is not of the parameter's declared type."""
    owners = dict.fromkeys(config.owner(key) for key in misfits(config))
    return [key for key in owners if config.is_of_user(key)]


def _likely_misfits(error: BaseException, config: GinConfig) -> list[BindingKey]:
    """Returns the user's misfits; None that T5X takes in some run is one only if T5X was running."""
    found = users_misfits(config)
    if passed_through_t5x(error):
        return found
    doubtful = {config.owner(key) for key in misfits(config) if takes_none(key)}
    return [key for key in found if key not in doubtful or config.value(key) is not None]


def _weighed(
    error: BaseException, config: GinConfig
) -> tuple[dict[BindingKey, float], Mapping[BindingKey, BindingKey]]:
    """Returns the weights of the bindings that an exception gives evidence of, and the binding that uses each."""
    evidence = _Evidence(error)
    weights: dict[BindingKey, float] = {}
    used_by: dict[BindingKey, BindingKey] = {}
    for key in config:
        if key.is_macro:
            continue
        owner = config.owner(key)
        value = config.value(owner)
        if isinstance(value, str) and value != config.written(owner):
            value = object()  # equal to nothing, because the harness replaced the user's path with its own
        weight = evidence.weight(key, value, config)
        if weight and config.is_of_user(owner):
            weight += 1
        elif weight < _CONVINCING:
            continue  # T5X's own files rarely have the mistake
        if weight > weights.get(owner, 0.0):
            weights[owner], used_by[owner] = weight, key
    return weights, used_by


def _likeliest(weights: Mapping[BindingKey, float]) -> list[BindingKey]:
    return sorted((key for key in weights if weights[key] >= _LEAST), key=lambda key: -weights[key])


def _users_code(config: GinConfig) -> list[BindingKey]:
    """Returns the user's bindings to their own functions and classes."""
    found = {
        config.owner(key): None
        for key, value in config.items()
        for part in _leaves(value)
        if isinstance(part, gin.config.ConfigurableReference) and is_users(_file(part))
    }
    return [key for key in found if config.is_of_user(key)]


def _file(reference: gin.config.ConfigurableReference) -> str:
    module = sys.modules.get(getattr(inspect.unwrap(reference.configurable.wrapped), "__module__", ""))
    return getattr(module, "__file__", None) or "<unknown>"


def _suspect(owner: BindingKey, key: BindingKey, weight: float, config: GinConfig) -> Suspect:
    value = format_value(config.written(owner), 80)
    is_unread = key.scope and key.scope not in config.program.used_scopes and not owner.is_macro
    aside = ", in a scope that nothing opens" if is_unread else ""
    shown = f"{owner.short} = {value} ({config.origin(owner)}{aside})"
    return Suspect(owner, shown, config.location(owner), weight)


class _Evidence:
    """Evidence from an exception: its text, the configurables that were being called, and the failed expressions."""

    def __init__(self, error: BaseException) -> None:
        cause = root_cause(error)
        text = full_text(cause)[:2000]
        if text.lstrip().startswith("in user code:"):  # lines of source code follow, with names of features
            text = ""
        self._text = " ".join(dict.fromkeys((one_line(cause), text)))
        lacked = set(re.findall(r"has no attribute '(\w+)'", self._text))  # attributes of another type
        self._words = set(re.findall(r"[A-Za-z_]\w*", self._text)) - lacked
        self._calls = calls(error)
        self._held = _texts_held(cause)
        names = _names_on_failing_lines(error)
        self._names = {name: weight for name, weight in names.items() if name not in lacked}

    def weight(self, key: BindingKey, value: Any, config: GinConfig) -> float:
        """Returns the strength of the evidence against a binding; 0 if there is none."""
        name = key.parameter
        in_text = max((_weight_in(part, self._text) for part in _leaves(value)), default=0.0)
        weight = 6.0 if self.holds(value) else in_text
        if f"{key.selector.split('.')[-1]}.{name}" in self._text:
            weight += 8
        elif name in self._words and len(name) > 3 and name not in _COMMON:
            weight += 4
        typed = _type_name(value) in self._text and not is_scalar_as_declared(config, key, value)
        on_line = self._names.get(name.lower(), 0.0)
        if not weight and not typed and (name in _COMMON or not on_line):
            return 0.0
        unfit = misfit(config, key) is not None
        if name not in _COMMON or weight or (typed and unfit):
            weight += on_line + (3 if typed and on_line else 0)
        if unfit:
            weight += 6 if typed else 3
        return weight + self._called(key) if weight else 0.0

    def holds(self, value: Any) -> bool:
        """Tells whether the failing code was working on a text that is in a bound value."""
        return any(isinstance(part, str) and part in self._held for part in _leaves(value))

    def _called(self, key: BindingKey) -> float:
        name = key.selector.split(".")[-1]
        for depth, call in enumerate(self._calls):
            if call.name.split(".")[-1] == name and f"{call.scope}/".startswith(f"{key.scope}/" if key.scope else ""):
                return 1.5 if depth == 0 else 1.0
        return 0.0


def _names_on_failing_lines(error: BaseException) -> Mapping[str, float]:
    """Returns the names in the failed expressions with their weights; the innermost weigh most."""
    found: dict[str, float] = {}
    for link in reversed(list(causes(error))):
        frames = [f for f in traceback.extract_tb(link.__traceback__) if not f.filename.startswith("<")]
        depth = 0
        for frame in reversed(frames[-_DEPTH:]):
            weight = 5.0 if depth == 0 else max(0.5, 3.0 - depth / 2)
            if party_of(frame.filename) in (USER, *FRONT):
                depth += 1
            else:  # elsewhere, variables rarely have the name of the parameter that they came from
                weight /= 2
            for name in re.findall(r"[A-Za-z_]\w*", _expression(frame)):
                found[name.lower()] = max(found.get(name.lower(), 0.0), weight)
    return found


def _texts_held(error: BaseException) -> set[str]:
    """Returns the texts in variables of the failing expressions, from the innermost code that is not Python's own.

    Identifiers are left out, because names of features and splits are used everywhere.
    """
    found: set[str] = set()
    frames = list(traceback.walk_tb(error.__traceback__))
    lines = traceback.extract_tb(error.__traceback__)
    for (frame, _), line in zip(reversed(frames), reversed(lines), strict=False):
        names = re.findall(r"[A-Za-z_]\w*", _expression(line))
        held = [frame.f_locals.get(name) for name in names]
        found |= {value for value in held if isinstance(value, str) and value and not value.isidentifier()}
        if party_of(line.filename) != PYTHON:
            break
    return found


def _expression(frame: traceback.FrameSummary) -> str:
    """Returns the source code that was being evaluated, or the whole line if Python does not know more."""
    if frame.lineno is None:
        return ""
    end = frame.end_lineno or frame.lineno
    lines = [
        linecache.getline(frame.filename, number) for number in range(frame.lineno, min(end, frame.lineno + 8) + 1)
    ]
    if len(lines) == 1 and frame.colno is not None and frame.end_colno is not None:
        return lines[0].encode()[frame.colno : frame.end_colno].decode(errors="replace")
    return "".join(lines)


def _weight_in(value: Any, text: str) -> float:
    if isinstance(value, gin.config.ConfigurableReference):
        name = value.selector.split(".")[-1]
        return 4.0 if len(name) > 3 and re.search(rf"\b{re.escape(name)}\b", text) else 0.0
    if value is None or isinstance(value, bool):
        return 0.0
    if isinstance(value, str):
        if not value:
            return 0.0
        if f"'{value}'" in text or f'"{value}"' in text or f"`{value}`" in text:
            return 6.0
        if value in _DTYPES:  # JAX names the dtypes of its arrays
            return 0.0
        # A module or file of that name is something else.
        return 4.0 if len(value) > 2 and re.search(rf"(?<!\w){re.escape(value)}(?!\w|\.\w)", text) else 0.0
    if isinstance(value, (int, float)):
        if not value and re.search(r"\b(?:division|modulo) by zero\b", text):
            return 5.0 if isinstance(value, int) or "float" in text else 0.0
        if not re.search(rf"(?<![\w.-]){re.escape(str(value))}(?![\w.]*\d)", _BOUND.sub("", text)):
            return 0.0
        may_be_zero = re.search(r"\bnon-?negative\b|(?:>=|at least) ?0\b", text)
        if (value < 0 or (value == 0 and not may_be_zero)) and re.search(
            r"\b(?:positive|(?:non-?)?negative|greater than|at least)\b|> ?=? ?[01]\b", text
        ):
            return 5.5
        digits = len(str(value))  # a short number occurs in many texts
        return 5.0 if digits > 3 else 3.5 if digits > 1 else 2.0
    return 0.0


def _leaves(value: Any) -> Iterator[Any]:
    """Yields the values in a value; of a dict, not the names of features, which any error about data has."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from (each for each in _leaves(name) if not (isinstance(each, str) and each.isidentifier()))
            yield from _leaves(part)
    elif isinstance(value, (list, tuple, set)):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _type_name(value: Any) -> str:
    """Returns the name of a bound value's type, quoted as in Python's messages."""
    if isinstance(value, gin.config.ConfigurableReference):
        return f"'{value.selector.split('.')[-1]}'" if value.evaluate else "'function'"
    return f"'{type(value).__name__}'"
