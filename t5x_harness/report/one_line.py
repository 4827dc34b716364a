"""A failed stage in one line, as in pytest's short summary."""

from __future__ import annotations

from pathlib import Path

from t5x_harness.spec import StageResult

_LEAST = 18
"""Columns of a message that are shown before its place is."""


def failure_in_a_line(result: StageResult, room: int | None) -> str:
    """Returns ``SEQ15: lacks targets (run.gin:15)`` of the first error.

    Args:
      result: of the stage.
      room: columns to cut it to; None for all of it.
    """
    error = next(iter(result.errors), None)
    if error is None:
        return f"{result.stage} failed, and no finding says why"
    text = f"{error.code}: {error.message.partition(chr(10))[0]}"
    place = f" ({Path(error.location.file).name}:{error.location.line})" if error.location is not None else ""
    if room is None or len(text + place) <= room:
        return text + place
    if room < _LEAST + len(place):
        return text  # which pytest cuts
    return f"{text[: room - len(place) - 3].rstrip()}...{place}"
