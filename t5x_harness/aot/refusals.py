"""Why a program could not even be judged: the compiler refuses it or crashes, or this machine has no room for that."""

from __future__ import annotations

import re
from pathlib import Path

from t5x_harness.aot.compiler import Until
from t5x_harness.spec import Finding, Severity, Stage

_REASON = re.compile(r"^(?:[A-Z_]+: )?(?:[A-Z]\d+: )?(.*)")
_OTHER_VERSION = "a newer or older libtpu may compile it"


class NotCompiled(Exception):
    """A program could not be judged; the finding says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def refused(program: str, message: str, log: Path) -> NotCompiled:
    """Returns what to raise for a program that the compiler refuses.

    Args:
      program: its name.
      message: all that the compiler says.
      log: the file that has it.
    """
    first = _REASON.match(message.strip().partition("\n")[0])
    reason = first[1] if first else message
    return _not_compiled(
        "AOT03",
        f"the TPU compiler does not compile {program}: {reason}",
        f"see {log}, which has all that it says; {_OTHER_VERSION}",
    )


def crashed(program: str, how: object, log: Path) -> NotCompiled:
    """Returns what to raise where the process ended in which a program was compiled."""
    return _not_compiled(
        "AOT03",
        f"the TPU compiler ended its process while it compiled {program}: {how}",
        f"see {log}; {_OTHER_VERSION}",
    )


def too_little_memory(program: str, needed: int, there: int, until: Until) -> NotCompiled:
    """Returns what to raise where compiling takes more bytes of this machine's memory than are free."""
    less = "--aot=depths or --aot=lower" if until is Until.MEMORY else "--aot=memory"
    return _not_compiled(
        "AOT04",
        f"compiling {program} takes about {needed / 2**30:.1f} GiB of this machine's memory, and "
        f"{there / 2**30:.1f} GiB are free",
        f"free some, take a larger machine, or compile less of it: {less}",
    )


def _not_compiled(code: str, message: str, fix: str) -> NotCompiled:
    return NotCompiled(Finding(code, Severity.ERROR, Stage.AOT, message, fix=fix))
