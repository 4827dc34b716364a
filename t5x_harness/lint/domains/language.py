"""A small language for what the values of a parameter may be, such as ``int >= 1 | None``; README.md describes it."""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from t5x_harness.gin.values import Macro, Reference, is_required

_TOKEN = re.compile(r"\s*(>=|<=|[|\[\](){}:,<>]|'[^']*'|-?\d[\d_]*(?:\.\d+)?(?:e-?\d+)?|@[\w.]*|\w+)")

UNKNOWN = object()
Sibling = Callable[[str], Any]
"""Returns the value of another parameter of the same configurable; UNKNOWN if nothing binds it."""


class Kind(enum.Enum):
    """What is wrong with a value.

    ``QUOTED``: a text that spells a value of the right type. ``FLOAT``: a float where whole numbers are needed.
    ``RANGE``: a number of the right type. ``OTHER``: anything else.
    """

    QUOTED = enum.auto()
    FLOAT = enum.auto()
    RANGE = enum.auto()
    OTHER = enum.auto()


@dataclasses.dataclass(frozen=True)
class Misfit:
    """A part of a value that its domain does not have.

    Attributes:
      kind: what is wrong with it.
      value: the part, or the whole value.
      within: where it is in the whole value, such as ``['inputs']``; empty for the whole.
      domain: what is needed in its place.
    """

    kind: Kind
    value: Any
    within: str
    domain: Domain


@dataclasses.dataclass(frozen=True)
class Atom:
    """One alternative of a domain: everything here is accepted.

    A subclass judges values that are no macros. It may leave the judgment to parts of a list, tuple or dict.
    """

    words: str

    def accepts(self, value: Any, sibling: Sibling) -> bool:
        """Returns whether a value is of this alternative's type and, if it is one, in its range."""
        return True

    def is_of_type(self, value: Any) -> bool:
        """Returns whether a value has the type of this alternative, whatever its range or its parts."""
        return self.accepts(value, lambda name: UNKNOWN)

    def parts(self, value: Any) -> Iterator[tuple[str, Any, Domain]]:
        """Yields where each part of an accepted value is, the part, and its own domain."""
        return iter(())


@dataclasses.dataclass(frozen=True)
class _Literal(Atom):
    value: Any

    def accepts(self, value: Any, sibling: Sibling) -> bool:
        return type(value) is type(self.value) and bool(value == self.value)


@dataclasses.dataclass(frozen=True)
class _NoneWithout(Atom):
    """None, if another parameter is None, too."""

    other: str

    def accepts(self, value: Any, sibling: Sibling) -> bool:
        return value is None and (sibling(self.other) in (None, UNKNOWN))


@dataclasses.dataclass(frozen=True)
class _Boolean(Atom):
    def accepts(self, value: Any, sibling: Sibling) -> bool:
        return isinstance(value, bool) or (isinstance(value, int) and value in (0, 1))


_ANY_BOUND = -math.inf, math.inf


@dataclasses.dataclass(frozen=True)
class _Number(Atom):
    """Whole numbers, or all finite numbers, in a range whose bounds are numbers or the names of other parameters."""

    is_whole: bool
    low: float | str = -math.inf
    high: float | str = math.inf
    with_low: bool = True
    with_high: bool = True

    def accepts(self, value: Any, sibling: Sibling) -> bool:
        if not self.is_of_type(value) or not math.isfinite(value):
            return False
        bounds = [sibling(b) if isinstance(b, str) else b for b in (self.low, self.high)]
        low, high = (bound if isinstance(bound, (int, float)) else None for bound in bounds)
        above = low is None or value > low or (self.with_low and value == low)
        return above and (high is None or value < high or (self.with_high and value == high))

    def is_of_type(self, value: Any) -> bool:
        return isinstance(value, int if self.is_whole else (int, float))


@dataclasses.dataclass(frozen=True)
class _Text(Atom):
    is_known: Callable[[str], bool] = lambda text: True
    takes_objects: bool = False

    def accepts(self, value: Any, sibling: Sibling) -> bool:
        return self.is_known(value) if isinstance(value, str) else self.takes_objects and isinstance(value, Reference)


@dataclasses.dataclass(frozen=True)
class _Object(Atom):
    def accepts(self, value: Any, sibling: Sibling) -> bool:
        return isinstance(value, Reference)


@dataclasses.dataclass(frozen=True)
class _Items(Atom):
    """Lists and tuples of any length with one domain for all items, or with one for each."""

    items: tuple[Domain, ...]
    is_of_any_length: bool

    def accepts(self, value: Any, sibling: Sibling) -> bool:
        return isinstance(value, (list, tuple)) and (self.is_of_any_length or len(value) == len(self.items))

    def parts(self, value: Any) -> Iterator[tuple[str, Any, Domain]]:
        for index, item in enumerate(value):
            yield f"[{index}]", item, self.items[0 if self.is_of_any_length else index]


@dataclasses.dataclass(frozen=True)
class _Dict(Atom):
    key: Domain
    value: Domain

    def accepts(self, value: Any, sibling: Sibling) -> bool:
        return isinstance(value, dict)

    def parts(self, value: Any) -> Iterator[tuple[str, Any, Domain]]:
        for key, item in value.items():
            yield f", in its key {key!r}", key, self.key
            yield f"[{key!r}]", item, self.value


@dataclasses.dataclass(frozen=True)
class Domain:
    """The values of a parameter, or of a part of them: those of any of its alternatives."""

    alternatives: tuple[Atom, ...]

    def misfit(self, value: Any, sibling: Sibling, within: str = "") -> Misfit | None:
        """Returns what of a value does not fit; None if all of it may.

        Args:
          value: a value of Gin's. Macros that nothing defines, and what is computed when Gin needs it, may be anything.
          sibling: returns the values of the other parameters.
          within: where the value is in the whole one.
        """
        if isinstance(value, Macro) or is_required(value) or (isinstance(value, Reference) and value.called):
            return None
        fitting = [atom for atom in self.alternatives if atom.accepts(value, sibling)]
        if not fitting:
            return Misfit(self._kind(value), value, within, self)
        found: Misfit | None = None
        for atom in fitting:
            misfits = (d.misfit(part, sibling, within + at) for at, part, d in atom.parts(value))
            found = next((each for each in misfits if each is not None), None)
            if found is None:
                return None
        return found

    def _kind(self, value: Any) -> Kind:
        """Returns what is wrong with a value that no alternative accepts."""
        numbers = [atom for atom in self.alternatives if isinstance(atom, _Number)]
        if isinstance(value, float) and any(atom.is_whole for atom in numbers):
            return Kind.FLOAT
        if any(atom.is_of_type(value) for atom in numbers):
            return Kind.RANGE
        spelled = literal(value) if isinstance(value, str) else NOT_A_LITERAL
        if spelled is NOT_A_LITERAL:
            return Kind.OTHER
        is_number = bool(numbers) and isinstance(spelled, (int, float))
        return Kind.QUOTED if is_number or any(atom.is_of_type(spelled) for atom in self.alternatives) else Kind.OTHER

    @property
    def is_truth(self) -> bool:
        """Whether all that it asks of a value is whether Python takes it for true."""
        return all(
            atom in (_NAMED["bool"], _NAMED["None"], _NAMED["True"], _NAMED["False"]) for atom in self.alternatives
        )

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts that it lists, or the names of types; empty if it takes other texts too."""
        if _NAMED["dtype"] in self.alternatives:
            return _TYPES
        if any(isinstance(atom, _Text) for atom in self.alternatives):
            return ()
        return tuple(a.value for a in self.alternatives if isinstance(a, _Literal) and isinstance(a.value, str))

    @property
    def numbers(self) -> Domain:
        """The alternatives that are numbers, and then None."""
        numbers = [atom for atom in self.alternatives if isinstance(atom, _Number)]
        return Domain((*numbers, *(atom for atom in self.alternatives if atom is _NAMED["None"])))

    def __str__(self) -> str:
        words = list(dict.fromkeys(atom.words for atom in self.alternatives))
        return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _compiles(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True


_DTYPES = re.compile(
    r"bool|float|int|uint|half|single|double|(?:bfloat16|float(?:16|32|64|128)|u?int(?:2|4|8|16|32|64))"
    r"|complex(?:64|128)|float[48]_\w+|[<>=|].*|[?A-Za-z]\d*"
)
_TYPES = (
    *("bfloat16", "float16", "float32", "float64", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool"),
)
_NAMED: dict[str, Atom] = {
    "None": _Literal("None", None),
    "True": _Literal("True", True),
    "False": _Literal("False", False),
    "bool": _Boolean("True or False"),
    "str": _Text("a text in quotes"),
    "path": _Text("a path in quotes", takes_objects=True),
    "regex": _Text("a regular expression in quotes", _compiles),
    "dtype": _Text("a type such as 'float32'", lambda text: _DTYPES.fullmatch(text) is not None, takes_objects=True),
    "any": Atom("anything"),
}


NOT_A_LITERAL = object()


@functools.lru_cache(maxsize=1024)
def literal(text: str) -> Any:
    """Returns the number, boolean, None, tuple, list or dict that a text spells; NOT_A_LITERAL for any other text."""
    try:
        value = ast.literal_eval(text.strip()) if len(text) <= 1000 else text
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return NOT_A_LITERAL
    return value if value is None or isinstance(value, (bool, int, float, list, tuple, dict)) else NOT_A_LITERAL


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Domain:
    """Parses the text of a domain.

    Raises:
      ValueError: it is not in the language.
    """
    reader = _Reader(text)
    domain = reader.domain()
    if reader.rest:
        raise ValueError(f"{text!r}: {reader.rest[0]!r} is not expected")
    return domain


class _Reader:
    def __init__(self, text: str) -> None:
        self.rest = _TOKEN.findall(text)
        self._text = text
        if "".join(self.rest) != "".join(re.findall(r"'[^']*'|\S", text)).replace(" ", ""):
            raise ValueError(f"{text!r} has characters that mean nothing here")

    def domain(self) -> Domain:
        alternatives = [self._atom()]
        while self._take("|"):
            alternatives.append(self._atom())
        return Domain(tuple(alternatives))

    def _take(self, token: str) -> bool:
        if self.rest[:1] == [token]:
            self.rest.pop(0)
            return True
        return False

    def _need(self, token: str) -> None:
        if not self._take(token):
            raise ValueError(f"{self._text!r}: {token!r} is expected before {' '.join(self.rest)!r}")

    def _atom(self) -> Atom:
        if not self.rest:
            raise ValueError(f"{self._text!r} ends too early")
        token = self.rest.pop(0)
        if token == "[":
            item = self.domain()
            self._need("]")
            return _Items("a list or tuple", (item,), is_of_any_length=True)
        if token == "(":
            if self._take(")"):
                return _Items("an empty list or tuple", (), is_of_any_length=False)
            items = [self.domain()]
            while self._take(","):
                items.append(self.domain())
            self._need(")")
            return _Items(f"a list or tuple of {len(items)}", tuple(items), is_of_any_length=False)
        if token == "{":
            key = self.domain()
            self._need(":")
            value = self.domain()
            self._need("}")
            return _Dict("a dict", key, value)
        if token.startswith("'"):
            return _Literal(token, token[1:-1])
        if token.startswith("@"):
            kind = "a function" if token == "@function" else f"an object of {token[1:]}" if token[1:] else "an object"
            return _Object(f"{kind} by reference (@…)")
        if token in ("int", "float"):
            return self._number(token == "int")
        if token == "None" and self._take("without"):
            other = self.rest.pop(0) if self.rest else ""
            return _NoneWithout(f"None without {other}", other)
        if token not in _NAMED:
            raise ValueError(f"{self._text!r}: {token!r} is not a domain")
        return _NAMED[token]

    def _number(self, is_whole: bool) -> _Number:
        noun = "a whole number" if is_whole else "a number"
        if self._take("in"):
            with_low = self.rest.pop(0) == "["
            low = self._bound()
            self._need(",")
            high = self._bound()
            with_high = self.rest.pop(0) == "]"
            start = f"from {low:g}" if isinstance(low, float) else f"from {low}"
            end = f"{high:g}" if isinstance(high, float) else high
            if low == high:
                return _Number(str(end), is_whole, low, high)
            start = start if with_low else start.replace("from", "above")
            words = f"{noun} {start} up to {end}" if with_high else f"{noun} {start} up to, but not including, {end}"
            return _Number(words, is_whole, low, high, with_low, with_high)
        if self._take(">="):
            low = self._bound()
            return _Number(f"{noun} from {_shown(low)} up", is_whole, low=low)
        if self._take(">"):
            low = self._bound()
            return _Number(f"{noun} above {_shown(low)}", is_whole, low=low, with_low=False)
        if self._take("<="):
            high = self._bound()
            return _Number(f"{noun} up to {_shown(high)}", is_whole, high=high)
        if self._take("<"):
            high = self._bound()
            return _Number(f"{noun} below {_shown(high)}", is_whole, high=high, with_high=False)
        return _Number(noun, is_whole)

    def _bound(self) -> float | str:
        if not self.rest:
            raise ValueError(f"{self._text!r} ends too early")
        token = self.rest.pop(0)
        return token if token.isidentifier() else float(token)


def _shown(bound: float | str) -> str:
    return bound if isinstance(bound, str) else f"{bound:g}"
