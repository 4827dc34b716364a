"""The names of buckets and objects: what Google allows, and the globs of ``matchGlob``."""

import functools
import re
from collections.abc import Callable, Iterable

from t5x_harness.buckets.addresses import bucket_fault
from t5x_harness.google.storage.errors import Invalid

LONGEST_OBJECT_NAME = 1024  # bytes of UTF-8
_CHALLENGES = ".well-known/acme-challenge/"


def check_bucket_name(name: str) -> None:
    """Raises Invalid, naming the broken rule, for a bucket name that Google would refuse."""
    if fault := bucket_fault(name):
        raise Invalid(f"Invalid bucket name: '{name}': {fault}", code="InvalidBucketName")


def check_object_name(name: str) -> None:
    """Raises Invalid, naming the broken rule, for an object name that Google would refuse."""
    if fault := object_fault(name):
        raise Invalid(f"Invalid object name: {name[:80]!r}: {fault}")


def object_fault(name: str) -> str | None:
    """Returns the rule that an object's name breaks; None if Google would accept it."""
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        return "it is not Unicode text"
    if not 1 <= length <= LONGEST_OBJECT_NAME:
        return f"it must have 1 to {LONGEST_OBJECT_NAME} bytes of UTF-8, and has {length}"
    if "\r" in name or "\n" in name:
        return "it must not contain a carriage return or a line feed"
    if name in (".", ".."):
        return "it must not be '.' or '..'"
    if name.startswith(_CHALLENGES):
        return f"it must not begin with '{_CHALLENGES}'"
    return None


_SPECIAL = "*?[{\\"
_LONGEST = 1024  # characters, because a name has at most this many bytes
_STEPS_KEPT = 4096
_NO_SLASH = "/".__ne__


def literal_prefix(glob: str) -> str:
    """Returns the text that every matching name begins with."""
    for index, character in enumerate(glob):
        if character in _SPECIAL:
            return glob[:index]
    return glob


class Glob:
    """A glob that matches names in time proportional to the name.

    Python's ``re`` tries all ways to split a name among stars, which takes minutes for a dozen of them and blocks all
    other threads. This automaton follows all ways at once: it keeps the set of states that the characters lead to.

    Raises:
      Invalid: a bracket or brace is not closed, a range runs backwards, or the glob is longer than any name.
    """

    def __init__(self, glob: str) -> None:
        if len(glob) > _LONGEST:
            raise Invalid(f"Invalid glob {glob[:80]!r}…: it has {len(glob)} characters, more than {_LONGEST}")
        self._free: list[list[int]] = [[]]  # the states that each state leads to without a character
        self._moves: list[list[tuple[Callable[[str], object], int]]] = [[]]
        self._end = self._build(glob)
        self._start = self._closure([0])
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Tells whether a whole name matches."""
        states = self._start
        for character in name:
            following = self._steps.get((states, character))
            if following is None:
                following = self._step(states, character)
            states = following
            if not states:
                return False
        return self._end in states

    def _build(self, glob: str) -> int:
        braces: list[tuple[int, int]] = []  # the states in which alternatives begin and meet
        state = index = 0
        while index < len(glob):
            character = glob[index]
            index += 1
            if character == "*":
                across = glob.startswith("*", index)
                index += across
                state = self._after(state)
                self._moves[state].append(((lambda _: True) if across else _NO_SLASH, state))
            elif character == "?":
                state = self._after(state, _NO_SLASH)
            elif character == "[":
                test, index = _bracket(glob, index)
                state = self._after(state, test)
            elif character == "{":
                braces.append((state, self._new()))
                state = self._after(state)
            elif character == "}" and braces:
                self._free[state].append(braces[-1][1])
                state = braces.pop()[1]
            elif character == "," and braces:
                self._free[state].append(braces[-1][1])
                state = self._after(braces[-1][0])
            else:
                if character == "\\" and index < len(glob):
                    character, index = glob[index], index + 1
                state = self._after(state, character.__eq__)
        if braces:
            raise Invalid(f"Invalid glob {glob!r}: a brace is not closed")
        return state

    def _new(self) -> int:
        self._free.append([])
        self._moves.append([])
        return len(self._free) - 1

    def _after(self, state: int, test: Callable[[str], object] | None = None) -> int:
        """Adds a state that is reached by a character that passes the test, or without a character; returns it."""
        new = self._new()
        if test is None:
            self._free[state].append(new)
        else:
            self._moves[state].append((test, new))
        return new

    def _closure(self, states: Iterable[int]) -> frozenset[int]:
        found, left = set(states), list(states)
        while left:
            for following in self._free[left.pop()]:
                if following not in found:
                    found.add(following)
                    left.append(following)
        return frozenset(found)

    def _step(self, states: frozenset[int], character: str) -> frozenset[int]:
        if len(self._steps) >= _STEPS_KEPT:
            self._steps.clear()
        following = self._closure(
            list({to for state in states for test, to in self._moves[state] if test(character) is True})
        )
        self._steps[states, character] = following
        return following


compile_glob = functools.lru_cache(64)(Glob)


def _bracket(glob: str, start: int) -> tuple[Callable[[str], object], int]:
    """Returns a test for the characters in a bracket, and the index after it."""
    negated = glob[start : start + 1] in ("!", "^")
    first = start + negated
    end = glob.find("]", first + 1)  # a bracket at the beginning is one of the characters
    if end < 0:
        raise Invalid(f"Invalid glob {glob!r}: a bracket is not closed")
    inside = re.sub(r"([\\\[\]^&~|])", r"\\\1", glob[first:end])
    try:
        pattern = re.compile(f"[^/{inside}]" if negated else f"(?!/)[{inside}]", re.DOTALL)
    except re.error as error:
        raise Invalid(f"Invalid glob {glob!r}: {error}") from error
    return lambda character: pattern.match(character) is not None, end + 1
