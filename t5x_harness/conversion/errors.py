"""The error of conversions."""

from __future__ import annotations


class ConversionError(Exception):
    """A checkpoint cannot be converted; the message says what was read, what disagrees, and the smallest fix."""


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__
