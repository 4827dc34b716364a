"""Where findings are shown in a source tree: for formats that know only files of the repository, not the run's own.

A finding may lie in a file outside the repository, such as one of T5X's own configs that a run includes, or in a
binding of the command line.  It is then shown at the line of the repository that leads there: the innermost include
statement, or else the beginning of the config that is run; its text says where it really is.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

from t5x_harness.report.report import Report
from t5x_harness.spec import Finding, Location, RunSpec

_INSTALLED = frozenset(("site-packages", "dist-packages"))


@dataclasses.dataclass(frozen=True)
class SourceLine:
    """A line, counted from 1, of a file; the path is relative to the source root, with ``/`` between its parts."""

    file: str
    line: int


@dataclasses.dataclass(frozen=True)
class PlacedFinding:
    """A finding with the place to show it at.

    Attributes:
      finding: what was found.
      place: where to show it; None if nothing that leads there is in the source tree.
      chain: the include statements in the source tree that lead from the config that is run to ``place``, the nearest
        first.
      text: the message, with the finding's own place in front of it if that is not ``place``.
      runs: the names of the runs that it was found in.
      cwd: the folder that paths in ``finding`` start from.
    """

    finding: Finding
    place: SourceLine | None
    chain: tuple[SourceLine, ...]
    text: str
    runs: tuple[str, ...]
    cwd: str


def source_root(report: Report) -> Path:
    """Returns the folder of the git repository that the first run starts in, or the folder it starts in."""
    start = Path(os.path.abspath(report.results[0].spec.cwd if report.results else "."))
    return next((folder for folder in (start, *start.parents) if (folder / ".git").exists()), start)


def placed_findings(report: Report, root: Path) -> tuple[PlacedFinding, ...]:
    """Returns the findings of all runs in their order; a finding that several runs share comes once."""
    merged: dict[tuple[object, ...], PlacedFinding] = {}
    for row in report.rows:
        for finding in row.findings:
            new = _placed(finding, row.result.spec, row.name, root)
            key = (finding.code, finding.stage, finding.severity, new.place, new.text, finding.fix)
            known = merged.get(key)
            merged[key] = new if known is None else dataclasses.replace(known, runs=(*known.runs, row.name))
    return tuple(merged.values())


def place_in(root: Path, cwd: str, file: str, line: int) -> SourceLine | None:
    """Returns a line of a file, by a path from ``cwd``, as a place below ``root``; None if it is not a file there.

    A file that is installed into an environment does not count as the repository's, wherever the environment lies.
    """
    path = os.path.normpath(os.path.join(os.path.abspath(cwd), file))
    relative = os.path.relpath(path, root)
    parts = relative.split(os.sep)
    if parts[0] == os.pardir or _INSTALLED.intersection(parts) or not os.path.isfile(path):
        return None
    return SourceLine(Path(relative).as_posix(), max(line, 1))


def run_place(spec: RunSpec, root: Path) -> SourceLine | None:
    """Returns the beginning of the config that is run, which is the last of its files that lies below ``root``."""
    places = (place_in(root, spec.cwd, file, 1) for file in reversed(spec.gin_files))
    return next((place for place in places if place is not None), None)


def _placed(finding: Finding, spec: RunSpec, run: str, root: Path) -> PlacedFinding:
    places = [place_in(root, spec.cwd, at.file, at.line) for at in _steps(finding.location)]
    inside = [place for place in places if place is not None]
    named = finding.location or finding.binding
    is_there = bool(places) and places[0] is not None
    return PlacedFinding(
        finding,
        place=inside[0] if inside else run_place(spec, root),
        chain=tuple(inside[1:]),
        text=finding.message if is_there or named is None else f"{named}: {finding.message}",
        runs=(run,),
        cwd=spec.cwd,
    )


def _steps(location: Location | None) -> Iterator[Location]:
    """Yields a place and the include statements above it, the nearest first."""
    if location is not None:
        yield location
        yield from reversed(location.included_from)
