"""JSON as Vertex AI takes it, and its errors in the words that the service has for them."""

from __future__ import annotations

from typing import Any

from t5x_harness.google.json_text import BadJson, read_json
from t5x_harness.google.vertex.wire.errors import ApiError, Code, Violation

__all__ = ["check_text", "parse_json"]


def parse_json(body: bytes) -> Any:
    """Reads a body.

    Raises:
      ApiError: INVALID_ARGUMENT: ``read_json`` refuses it.
    """
    try:
        return read_json(body)
    except BadJson as error:
        message = f"Invalid JSON payload received. {error}"
        raise ApiError(Code.INVALID_ARGUMENT, message, [Violation("", message)]) from None


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
