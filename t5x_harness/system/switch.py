"""On or off, as people write it in variables and ini files."""

from __future__ import annotations

_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def is_on(text: str) -> bool:
    """Returns whether a text says on; an empty one says off.

    Raises:
      ValueError: it says neither.
    """
    if text.lower() in _ON:
        return True
    if not text or text.lower() in _OFF:
        return False
    raise ValueError(f"must be 1 or 0 (or on, off, true, false, yes, no), not {text!r}")
