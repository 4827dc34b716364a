"""What a conversion fails with."""

from __future__ import annotations


class ConversionError(Exception):
    """A checkpoint cannot be converted; the message says what was read, what disagrees, and the smallest fix."""


def first_line(error: BaseException) -> str:
    """Returns what a library says, without what follows it."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__
