"""Why a job failed, in one line: the error at the end of its log."""

from __future__ import annotations

import re

_TRACEBACK = "Traceback (most recent call last):"
_PROGRAM = re.compile(r"t5x(-harness[ \w]*)?: ")
_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)(:|$)")
# Gin appends this to the message of an error that passes through it.
_GIN = re.compile(r"\s*In call to configurable ")


def reason_in(text: str) -> str:
    """Returns the first line of the error at the end of a log, or the log's last line; ``-`` for an empty one.

    Args:
      text: the end of a log; its first line may be cut off.
    """
    lines = [line.rstrip() for line in text.strip().splitlines() if line.strip() and not _GIN.match(line)]
    if not lines:
        return "-"
    if _PROGRAM.match(lines[-1]):  # an error message of a program of T5X or of the harness
        return lines[-1]
    begin = max((index for index, line in enumerate(lines) if line.strip() == _TRACEBACK), default=None)
    if begin is not None:
        return next((line for line in lines[begin + 1 :] if not line[0].isspace()), lines[-1])
    return next((line for line in reversed(lines) if _ERROR.match(line)), lines[-1])
