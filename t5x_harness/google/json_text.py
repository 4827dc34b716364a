"""JSON in requests to Google's APIs. Any accepted value can be written back in an answer."""

import json
import math
from collections.abc import Callable
from typing import Any

_MOST_LEVELS = 100
"""The limit of protobuf's JSON parser. An answer adds a few levels, and Python writes at most a thousand."""


class BadJson(ValueError):
    """The text is not JSON, or no answer could repeat it; the message says why."""


def read_json(body: bytes | str, parse_int: Callable[[str], int] = int) -> Any:
    """Reads JSON.

    Args:
      parse_int: returns an integer, or raises ValueError for one that is refused.

    Raises:
      BadJson: the text is not JSON, is not UTF-8 (as with half a surrogate pair), has a number that is not finite,
        or has too many levels.
    """
    try:
        value = json.loads(body, parse_constant=_refuse_number, parse_float=_finite, parse_int=parse_int)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError as error:
        raise BadJson(f"The text is not UTF-8: {getattr(error, 'reason', error)}.") from None
    except RecursionError:
        raise BadJson("It is nested too deeply.") from None
    except ValueError as error:
        raise BadJson(f"Failed to load JSON: {error}") from None
    level, depth = [value], 0
    while level := [below for each in level for below in _below(each)]:
        depth += 1
        if depth > _MOST_LEVELS:
            raise BadJson("It is nested too deeply.")
    return value


def _below(value: object) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"Number {text} is out of range.")
    return number


def _refuse_number(text: str) -> float:
    raise ValueError(f"Unexpected token: {text} is not a number.")
