"""Reasons why a program could not be judged: JAX or the compiler refuses it, or this machine has too little memory."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.aot.libtpu import Until
from t5x_harness.resolve.exceptions import is_users, shown_path
from t5x_harness.spec import Finding, Location, Severity, Stage

_REASON = re.compile(r"^(?:[A-Z_]+: )?(?:[A-Z]\d+: )?(.*)")
_PLACE = re.compile(r"^ +(/\S+):(\d+):\d+ \[", re.MULTILINE)
"""A line of the compiler's traceback into the Python code that it refuses, innermost first."""
_OTHER_VERSION = "a newer or older libtpu may compile it"
_PRIMITIVE = re.compile(r"primitive '([^']+)' not found for platform")


class NotCompiled(Exception):
    """A program could not be judged; the finding says why, without the program's name."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def findings_of(errors: Iterable[tuple[str, NotCompiled]]) -> Iterator[Finding]:
    """Yields a finding for each reason, with the names of all programs that it affects."""
    affected: dict[tuple[str, str, Location | None], list[tuple[str, Finding]]] = {}
    for program, error in errors:
        found = error.finding
        affected.setdefault((found.code, found.message, found.location), []).append((program, found))
    for (_, message, _), programs in affected.items():
        *others, last = [program for program, _ in programs]
        names = f"{', '.join(others)} and {last}" if others else last
        yield dataclasses.replace(programs[0][1], message=f"{names}: {message}")


def refused(message: str, log: Path) -> NotCompiled:
    """Makes the exception for a program that the compiler refuses.

    Args:
      message: the compiler's whole message.
      log: the file that contains it.
    """
    reason = _REASON.sub(r"\1", message.strip().partition("\n")[0])
    place = _users_line((file, int(line)) for file, line in _PLACE.findall(message))
    fix = f"see {log} for its whole message; {_OTHER_VERSION}"
    return _not_compiled("AOT03", f"the TPU compiler refuses it: {reason}", fix, place)


def crashed(how: object, log: Path) -> NotCompiled:
    """Makes the exception for a program whose compilation ended its process."""
    return _not_compiled("AOT03", f"the TPU compiler ended its process: {how}", f"see {log}; {_OTHER_VERSION}")


def too_little_memory(needed: int, free: int, until: Until) -> NotCompiled:
    """Makes the exception for a program whose compilation takes more memory of this machine than is free."""
    less = "--aot=depths or --aot=lower" if until is Until.MEMORY else "--aot=memory"
    taken = f"compiling it takes about {needed / 2**30:.1f} GiB of this machine's memory"
    fix = f"free some, take a larger machine, or compile less of it: {less}"
    return _not_compiled("AOT04", f"{taken}, and {free / 2**30:.1f} GiB are free", fix)


def not_for_tpu(error: NotImplementedError, function: Callable[..., Any], arguments: Sequence[Any]) -> NotCompiled:
    """Makes the exception for an operation that JAX does not have for TPUs, with the user's line that uses it.

    Args:
      error: the exception that JAX raised.
      function: the function that JAX cannot lower.
      arguments: its arguments.
    """
    import jax

    known = _PRIMITIVE.search(str(error))
    said = f"JAX has no {known[1]} for TPUs" if known else str(error).partition("\n")[0]
    # For a function that was traced earlier, JAX's own traceback ends within JAX.
    uses = _uses(jax.make_jaxpr(function)(*arguments), known[1]) if known else []
    fix = "use an operation that JAX has for TPUs; the traceback in the run's log shows who asks for this one"
    place = next(filter(None, uses), None)
    return _not_compiled("AOT02", f"it cannot be lowered for a TPU: {said}", fix, place)


def _uses(jaxpr: Any, primitive: str) -> list[Location | None]:
    """Returns the user's innermost line for each use of a primitive; None if none of their lines leads there."""
    import jax

    found: list[Location | None] = []
    for equation in jaxpr.eqns:
        uses: list[Location | None] = [None] if equation.primitive.name == primitive else []
        for inner in jax.tree.leaves(list(equation.params.values())):
            if hasattr(inner, "eqns"):
                uses += _uses(inner, primitive)
        traced = equation.source_info.traceback
        line = _users_line((frame.file_name, frame.line_num) for frame in (traced.frames if traced is not None else ()))
        found += [use or line for use in uses]
    return found


def _users_line(frames: Iterable[tuple[str, int]]) -> Location | None:
    return next((Location(shown_path(file), line) for file, line in frames if is_users(file)), None)


def _not_compiled(code: str, message: str, fix: str, place: Location | None = None) -> NotCompiled:
    return NotCompiled(Finding(code, Severity.ERROR, Stage.AOT, message, place, fix))
