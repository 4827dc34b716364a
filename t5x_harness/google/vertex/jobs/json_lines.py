"""JSON that a program wrote in a line of its output, as far as Google's services can hold it."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

_DEEPEST = 100
"""Levels of lists and objects that messages of Google's APIs may have."""


def read_object(line: str) -> dict[str, Any] | None:
    """Reads a line as a ``google.protobuf.Struct``.

    Returns:
      The object; None for any line that is not one, or that a Struct cannot hold: text that is not JSON, numbers that a
      double has no finite value for, lone surrogates, and what is nested too deeply.
    """
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line, parse_constant=_refuse, parse_float=_finite, parse_int=_whole)
        json.dumps(found, ensure_ascii=False).encode()  # raises for a lone surrogate
    except (ValueError, OverflowError, RecursionError):
        return None
    return found if isinstance(found, dict) and _depth(found) <= _DEEPEST else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not a finite double")
    return number


def _whole(text: str) -> int:
    _finite(text)
    return int(text)


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [
        part
        for each in level
        if isinstance(each, (dict, list))
        for part in (each.values() if isinstance(each, dict) else each)
    ]:
        depth += 1
    return depth
