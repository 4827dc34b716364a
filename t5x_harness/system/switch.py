"""Reads on or off in variables and ini files."""

from __future__ import annotations

_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def is_on(text: str) -> bool:
    """Tells whether a text means on; an empty text means off.

    Raises:
      ValueError: it means neither.
    """
    if text.lower() in _ON:
        return True
    if not text or text.lower() in _OFF:
        return False
    raise ValueError(f"must be 1 or 0 (or on, off, true, false, yes, no), not {text!r}")
