"""JSON as Google's APIs take it: UTF-8 text that can be written again, and numbers that are numbers."""

from __future__ import annotations

import json
import math
from typing import Any

from t5x_harness.google.vertex.api.errors import ApiError, Code, Violation

__all__ = ["check_text", "parse_json"]


def parse_json(body: bytes) -> Any:
    """Reads a body.

    Raises:
      ApiError: INVALID_ARGUMENT: it is not JSON, or holds what no answer could say again: text that is not UTF-8, as
        half a surrogate pair is, NaN, infinity, or more levels than can be read.
    """
    try:
        value = json.loads(body, parse_constant=_refuse_number, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise _invalid(f"The text is not UTF-8: {error.reason}.") from None
    except RecursionError:
        raise _invalid("It is nested too deeply.") from None
    except ValueError as error:
        raise _invalid(f"Failed to load JSON: {error}") from None
    return value


def check_text(text: str, what: str) -> None:
    """Refuses a text that has no UTF-8, before anything is done with it.

    Args:
      text: of a request.
      what: it is, such as ``path``.

    Raises:
      ApiError: INVALID_ARGUMENT.
    """
    try:
        text.encode()
    except UnicodeError:
        raise ApiError(Code.INVALID_ARGUMENT, f"The {what} of the request is not UTF-8.") from None


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"Number {text} is out of range.")
    return number


def _refuse_number(text: str) -> float:
    raise ValueError(f"Unexpected token: {text} is not a number.")


def _invalid(why: str) -> ApiError:
    message = f"Invalid JSON payload received. {why}"
    return ApiError(Code.INVALID_ARGUMENT, message, [Violation("", message)])
