"""The value that every writer writes, and the places in a source tree at which its findings are shown.

A finding may be in a file outside the repository, such as one of T5X's own configs that a run includes, or in a
binding of the command line.  Formats that know only files of the repository show it at the line that leads there: the
innermost include statement, or else the beginning of the config that is run. Its text names the actual place.
"""

import dataclasses
import os
from collections import Counter
from functools import cached_property
from pathlib import Path

from t5x_harness.findings.printable import printable
from t5x_harness.spec import NOTHING_IMPORTED, Finding, Imports, Outcome, RunResult, RunSpec, Severity, Stage


@dataclasses.dataclass(frozen=True)
class RunRow:
    """One run, with its display name: its own, or its origin if several runs share the name."""

    name: str
    result: RunResult

    @property
    def mesh(self) -> str:
        """The mesh that the plan stage established; empty if the run did not get that far."""
        facts = (fact for stage in self.result.stages if stage.stage is Stage.PLAN for fact in stage.facts)
        return next((value for name, value in facts if name == "mesh"), "")

    @property
    def seconds(self) -> float:
        """The seconds that the caller waited for it; the stages' own time if that was not measured."""
        return self.result.seconds or sum(stage.seconds for stage in self.result.stages)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all stages, each once."""
        return tuple(dict.fromkeys(f for stage in self.result.stages for f in stage.findings))

    @property
    def not_checked(self) -> tuple[str, ...]:
        """The things that no stage could judge, each once; the stages that were not run share one line."""
        run = [stage for stage in self.result.stages if stage.outcome is not Outcome.NOT_RUN]
        failed = next((s.stage for s in run if s.outcome is Outcome.FAILED), None)
        # A stage that was not run, without an earlier failure, has its own reasons.
        telling = run if failed is not None else self.result.stages
        texts = list(dict.fromkeys(text for stage in telling for text in stage.not_checked))
        left_out = [
            stage.stage.value
            for stage in self.result.stages
            if stage.outcome is Outcome.NOT_RUN and (failed is not None or not stage.not_checked)
        ]
        if left_out:
            because = f", because {failed} failed" if failed is not None else ""
            texts.append(f"{', '.join(left_out)}: not run{because}")
        return tuple(texts)


@dataclasses.dataclass(frozen=True)
class Report:
    """The results of one call of the harness, in the order of the runs.

    Attributes:
      results: the results of the runs.
      origins: the place where each run was requested, such as the node of a test; by default its last gin file.
      seconds: the time that the caller waited for everything; by default the sum of the runs.
      imports: the imports of the stack, which are a part of that time.
      start_seconds: the seconds that Python took to start, before that time; 0 if they are not known.
    """

    results: tuple[RunResult, ...]
    origins: tuple[str, ...] = ()
    seconds: float | None = None
    imports: Imports = NOTHING_IMPORTED
    start_seconds: float = 0.0

    @cached_property
    def rows(self) -> tuple[RunRow, ...]:
        """The runs with unique names."""
        own = [result.spec.name for result in self.results]
        origins = self.origins or tuple(next(reversed(r.spec.gin_files), r.spec.name) for r in self.results)
        by_name: dict[str, set[str]] = {}
        for name, origin in zip(own, origins, strict=True):
            by_name.setdefault(name, set()).add(origin)
        names = [origin if len(by_name[name]) > 1 else name for name, origin in zip(own, origins, strict=True)]
        total, so_far = Counter(names), Counter[str]()
        rows = []
        for name, result in zip(names, self.results, strict=True):
            so_far[name] += 1
            shown = f"{name} ({so_far[name]})" if total[name] > 1 else name
            rows.append(RunRow(printable(shown), result))
        return tuple(rows)

    @property
    def waited(self) -> float:
        """The seconds that the caller waited for everything."""
        return self.seconds if self.seconds is not None else sum(row.seconds for row in self.rows)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that any of the runs has, in order."""
        present = {stage.stage for result in self.results for stage in result.stages}
        return tuple(stage for stage in Stage if stage in present)

    @property
    def passed(self) -> bool:
        """Whether something was run and all of it passed."""
        return bool(self.results) and all(result.passed for result in self.results)

    def count(self, severity: Severity) -> int:
        """Returns the number of findings of one severity in all runs."""
        return sum(f.severity is severity for row in self.rows for f in row.findings)

    def count_runs(self, outcome: Outcome) -> int:
        """Returns the number of runs that passed, failed, or were not run to the end."""
        return sum(run_outcome(result) is outcome for result in self.results)


def run_outcome(result: RunResult) -> Outcome:
    """Returns how a run ended: failed if a stage failed; not run if it had no stage, or one was cut off or in vain."""
    if any(stage.outcome is Outcome.FAILED for stage in result.stages):
        return Outcome.FAILED
    return Outcome.PASSED if result.passed and result.stages else Outcome.NOT_RUN


_INSTALLED = frozenset(("site-packages", "dist-packages"))


@dataclasses.dataclass(frozen=True)
class SourceLine:
    """A line, counted from 1, of a file; the path is relative to the source root, with ``/`` between its parts."""

    file: str
    line: int


@dataclasses.dataclass(frozen=True)
class PlacedFinding:
    """A finding with the place at which to show it.

    Attributes:
      finding: the finding.
      place: where to show it; None if nothing in the source tree leads to it.
      chain: the include statements in the source tree on the way from the config that is run to ``place``, nearest
        first.
      text: the message, preceded by the finding's own place if that is not ``place``.
      runs: the names of the runs in which it was found.
      cwd: the folder from which paths in ``finding`` start.
    """

    finding: Finding
    place: SourceLine | None
    chain: tuple[SourceLine, ...]
    text: str
    runs: tuple[str, ...]
    cwd: str


def source_root(report: Report) -> Path:
    """Returns the root of the git repository in which the first run starts, or the folder in which it starts."""
    start = Path(os.path.abspath(report.results[0].spec.cwd if report.results else "."))
    return next((folder for folder in (start, *start.parents) if (folder / ".git").exists()), start)


def placed_findings(report: Report, root: Path) -> tuple[PlacedFinding, ...]:
    """Returns the findings of all runs in their order; a finding that several runs share is returned once."""
    merged: dict[tuple[object, ...], PlacedFinding] = {}
    for row in report.rows:
        for finding in row.findings:
            new = _placed(finding, row.result.spec, row.name, root)
            key = (finding.code, finding.stage, finding.severity, new.place, new.text, finding.fix)
            known = merged.get(key)
            merged[key] = new if known is None else dataclasses.replace(known, runs=(*known.runs, row.name))
    return tuple(merged.values())


def place_in(root: Path, cwd: str, file: str, line: int) -> SourceLine | None:
    """Returns a line of a file, given by a path from ``cwd``, as a place below ``root``; None if it is not there.

    A file that is installed into an environment does not count as the repository's, no matter where the environment is.
    """
    path = os.path.normpath(os.path.join(os.path.abspath(cwd), file))
    relative = os.path.relpath(path, root)
    parts = relative.split(os.sep)
    if parts[0] == os.pardir or _INSTALLED.intersection(parts) or not os.path.isfile(path):
        return None
    return SourceLine(Path(relative).as_posix(), max(line, 1))


def run_place(spec: RunSpec, root: Path) -> SourceLine | None:
    """Returns the beginning of the config that is run, which is the last of its files below ``root``."""
    places = (place_in(root, spec.cwd, file, 1) for file in reversed(spec.gin_files))
    return next((place for place in places if place is not None), None)


def _placed(finding: Finding, spec: RunSpec, run: str, root: Path) -> PlacedFinding:
    at = finding.location
    steps = (at, *reversed(at.included_from)) if at is not None else ()  # nearest first
    places = [place_in(root, spec.cwd, step.file, step.line) for step in steps]
    inside = [place for place in places if place is not None]
    named = at or finding.binding
    is_there = bool(places) and places[0] is not None
    return PlacedFinding(
        finding,
        place=inside[0] if inside else run_place(spec, root),
        chain=tuple(inside[1:]),
        text=finding.message if is_there or named is None else f"{named}: {finding.message}",
        runs=(run,),
        cwd=spec.cwd,
    )
