"""Why a program could not be judged: the compiler refuses it or crashes, or this machine has too little memory."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from t5x_harness.aot.compiler import Until
from t5x_harness.resolve.exceptions import is_users, shown_path
from t5x_harness.spec import Finding, Location, Severity, Stage

_REASON = re.compile(r"^(?:[A-Z_]+: )?(?:[A-Z]\d+: )?(.*)")
_PLACE = re.compile(r"^ +(/\S+):(\d+):\d+ \[", re.MULTILINE)
"""A line of the compiler's traceback into the Python code that it refuses, innermost first."""
_OTHER_VERSION = "a newer or older libtpu may compile it"


class NotCompiled(Exception):
    """A program could not be judged; the finding says why, without the program's name."""

    def __init__(self, program: str, finding: Finding) -> None:
        super().__init__(finding.message)
        self.program = program
        self.finding = finding


def findings_of(errors: Iterable[NotCompiled]) -> Iterator[Finding]:
    """Yields a finding for each reason, with the names of all programs that it affects."""
    programs: dict[tuple[str, str, Location | None], list[str]] = {}
    first: dict[tuple[str, str, Location | None], Finding] = {}
    for error in errors:
        found = error.finding
        reason = (found.code, found.message, found.location)
        first.setdefault(reason, found)
        programs.setdefault(reason, []).append(error.program)
    for reason, found in first.items():
        *others, last = programs[reason]
        names = f"{', '.join(others)} and {last}" if others else last
        yield dataclasses.replace(found, message=f"{names}: {found.message}")


def refused(program: str, message: str, log: Path) -> NotCompiled:
    """Makes the exception for a program that the compiler refuses.

    Args:
      program: its name.
      message: the compiler's whole message.
      log: the file that contains it.
    """
    first = _REASON.match(message.strip().partition("\n")[0])
    reason = first[1] if first else message
    places = ((file, int(line)) for file, line in _PLACE.findall(message))
    place = next((Location(shown_path(file), line) for file, line in places if is_users(file)), None)
    return _not_compiled(
        program,
        "AOT03",
        f"the TPU compiler refuses it: {reason}",
        f"see {log} for its whole message; {_OTHER_VERSION}",
        place,
    )


def crashed(program: str, how: object, log: Path) -> NotCompiled:
    """Makes the exception for a program whose compilation ended its process."""
    return _not_compiled(
        program,
        "AOT03",
        f"the TPU compiler ended its process: {how}",
        f"see {log}; {_OTHER_VERSION}",
    )


def too_little_memory(program: str, needed: int, there: int, until: Until) -> NotCompiled:
    """Makes the exception for a program whose compilation takes more memory of this machine than is free."""
    less = "--aot=depths or --aot=lower" if until is Until.MEMORY else "--aot=memory"
    return _not_compiled(
        program,
        "AOT04",
        f"compiling it takes about {needed / 2**30:.1f} GiB of this machine's memory, and "
        f"{there / 2**30:.1f} GiB are free",
        f"free some, take a larger machine, or compile less of it: {less}",
    )


def _not_compiled(program: str, code: str, message: str, fix: str, place: Location | None = None) -> NotCompiled:
    return NotCompiled(program, Finding(code, Severity.ERROR, Stage.AOT, message, place, fix))
