"""Findings on the lines of the user: what is at fault in a library's gin file is fixed where that file is included."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from t5x_harness.gin.program import GinProgram
from t5x_harness.spec import Finding, Location


def on_own_lines(findings: Iterable[Finding], program: GinProgram) -> tuple[Finding, ...]:
    """Moves findings in a library's gin file to the user's line that includes it; all others stay.

    Args:
      findings: of any stage; the message of one that is moved names the place in the library, as an include does.
      program: the gin files of the run.
    """
    names = {
        file: name for file in program.texts if program.is_foreign(file) and (name := program.name_of(file)) != file
    }
    return tuple(_moved(_renamed(finding, names), program) for finding in findings)


def own_line(place: Location, program: GinProgram) -> Location | None:
    """Returns the user's innermost line through which a place was read; None if the user named a library's file."""
    chain = (*place.included_from, place)
    for depth in range(len(chain) - 1, -1, -1):
        if not program.is_foreign(chain[depth].file):
            return dataclasses.replace(chain[depth], included_from=chain[:depth])
    return None


def _renamed(finding: Finding, names: Mapping[str, str]) -> Finding:
    """Returns a finding whose text calls library files by their names in includes, not by their paths."""
    message, fix = finding.message, finding.fix or ""
    for file, name in names.items():
        message, fix = message.replace(file, name), fix.replace(file, name)
    return dataclasses.replace(finding, message=message, fix=fix or None)


def _moved(finding: Finding, program: GinProgram) -> Finding:
    place = finding.location
    if place is None or place.file not in program.texts or not program.is_foreign(place.file):
        return finding
    shown = f"{program.name_of(place.file)}:{place.line}"
    message = finding.message if shown in finding.message else f"{finding.message} ({shown})"
    return dataclasses.replace(finding, location=own_line(place, program), message=message)
