"""Whether the programs of a job fit the memory of its TPU: judged by a process of its own, before the job's begin.

What that process does is for the one who starts the server to know; see :mod:`t5x_harness.google.vertex.jobs.programs`.
It writes lines of JSON to standard output: notes, and at its end a judgement.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from t5x_harness.google.vertex.jobs.json_lines import read_object

_NOTE, _VERDICT, _TEXT, _OPEN = "note", "verdict", "text", "open"


class CannotJudge(ValueError):
    """Nothing can be said of a job's programs; the message says why."""


class Verdict(enum.StrEnum):
    """What a judgement is."""

    FITS = "fits"
    EXCEEDS = "exceeds"
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What was found out about a job's programs.

    Attributes:
      text: what each takes; or what the compiler says of the one that exceeds the memory, line by line; or why nothing
        is known.
      open: what was not judged beside it, or is in doubt; each as a line of the job's log.
    """

    verdict: Verdict
    text: str
    open: tuple[str, ...] = ()

    @classmethod
    def of_line(cls, line: str) -> Self | None:
        """Reads a line of the process; None for any other than its last one."""
        said = _read(line)
        if _TEXT not in said or said.get(_VERDICT) not in list(Verdict):
            return None
        return cls(Verdict(said[_VERDICT]), str(said[_TEXT]), tuple(map(str, said.get(_OPEN, ()))))

    def line(self) -> str:
        """Returns the line for it."""
        return json.dumps({_VERDICT: self.verdict.value, _TEXT: self.text, _OPEN: self.open})


def note_line(text: str) -> str:
    """Returns the line for something to say while it is not known yet."""
    return json.dumps({_NOTE: text})


class Judge:
    """What the server knows of one such process.

    Args:
      slice: the name of the TPU slice.
      units: of the job, whose programs are judged.
    """

    def __init__(self, slice: str, units: Sequence[str]) -> None:
        self.slice = slice
        self.units = tuple(units)
        self._judgement: Judgement | None = None
        self._last = ""

    def notes(self, lines: Sequence[str]) -> Iterator[str]:
        """Takes lines that the process wrote, and yields what there is to say meanwhile."""
        for line in lines:
            if (judgement := Judgement.of_line(line)) is not None:
                self._judgement = judgement
            elif note := _read(line).get(_NOTE):
                yield str(note)
            elif line.strip():
                self._last = line.strip()

    def judgement(self, status: int) -> Judgement:
        """Returns what it found out, now that it has ended with this status."""
        if self._judgement is not None:
            return self._judgement
        said = f"; the last that it said: {self._last}" if self._last else ""
        return Judgement(Verdict.UNKNOWN, f"the process that was to judge it ended with status {status}{said}")


def not_judged(slice: str, why: str) -> str:
    """Says in a job's log why nothing is known of its programs."""
    return f"t5x-harness has not judged whether the job fits the HBM of {slice}: {why}"


def _read(line: str) -> Mapping[str, Any]:
    return read_object(line) or {}
