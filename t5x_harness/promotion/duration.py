"""Durations as people write them: ``90s``, ``30m``, ``2h``, ``1d``, or a number of seconds."""

from __future__ import annotations

import math
import re

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")


def seconds_of(value: str | float) -> float:
    """Parses a duration into seconds.

    Raises:
      ValueError: it is not a duration above zero; the message shows the form.
    """
    match = _FORM.fullmatch(value.strip()) if isinstance(value, str) else None
    if isinstance(value, bool) or (match is None and isinstance(value, str)):
        seconds = 0.0
    else:
        seconds = float(match[1]) * _UNITS[match[2]] if match else float(value)
    if not 0 < seconds < math.inf:
        raise ValueError(f"give a time above zero, as 90s, 30m, 2h or a number of seconds; not {value!r}")
    return seconds
