"""The data that a stage collects while it works, before they become a :class:`~t5x_harness.spec.StageResult`."""

import dataclasses
import re
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterable
from typing import Any

from t5x_harness.findings.rule import PlaceOf, Rule
from t5x_harness.findings.silencing import split_silenced
from t5x_harness.findings.text import Table
from t5x_harness.findings.work import judged
from t5x_harness.spec import Change, FactTable, Finding, Location, Measure, Outcome, Severity, Stage, StageResult

_TASK = re.compile(r"\btask ([^\s:,;()]+)")
_NAMED = 3


def merge_tasks(findings: Iterable[Finding]) -> list[Finding]:
    """Merges findings that differ only in the name of a task: the first of them also names the other tasks.

    A finding whose message names no task, or more than one, is unchanged.
    """
    alike: dict[Finding, list[Finding]] = {}
    for finding in findings:
        named = len(_TASK.findall(finding.message)) == 1
        key = dataclasses.replace(finding, message=_TASK.sub("task *", finding.message)) if named else finding
        alike.setdefault(key, []).append(finding)
    return [_one_for_all(first, others) for first, *others in alike.values()]


def _one_for_all(first: Finding, others: list[Finding]) -> Finding:
    names = [_TASK.findall(other.message)[0] for other in others if other != first]
    if not names:
        return first
    left = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    tasks = f"task{'s' if len(names) > 1 else ''} {', '.join(names[:_NAMED])}{left}"
    return dataclasses.replace(first, message=f"{first.message}; the same goes for {tasks}")


@dataclasses.dataclass
class StageReport:
    """The growing result of one stage; see :class:`~t5x_harness.spec.StageResult` for the parts.

    Attributes:
      ignore: codes of findings to silence.
      folder: the folder that relative paths of findings start from.
      exercised: the work that was counted while it was done; see :attr:`~t5x_harness.spec.Stage.counts`.
      idle: the reason why it did no work, if it did none.
      unproved: the reason why the work that it did shows nothing, if that is the case.
      silenced: findings that the user ignores.
      stopped: the exceptions of parts of the stage; see :meth:`attempt`.
    """

    stage: Stage
    ignore: Collection[str] = ()
    folder: str = "."
    facts: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    findings: list[Finding] = dataclasses.field(default_factory=list)
    not_checked: list[str] = dataclasses.field(default_factory=list)
    changes: list[Change] = dataclasses.field(default_factory=list)
    exercised: int = 0
    idle: str = ""
    unproved: str = ""
    silenced: list[Finding] = dataclasses.field(default_factory=list)
    measures: list[Measure] = dataclasses.field(default_factory=list)
    tables: list[FactTable] = dataclasses.field(default_factory=list)
    stopped: list[Exception] = dataclasses.field(default_factory=list)
    started: float = dataclasses.field(default_factory=time.monotonic)

    def fact(self, name: str, value: object) -> None:
        """Records a fact that was established; facts are shown in the order of these calls."""
        self.facts.append((name, str(value)))
        if isinstance(value, Table):
            self.tables.append(FactTable(name, value.header, value.rows))

    def measure(self, name: str, value: float, unit: str = "", *, of: str = "", step: int | None = None) -> None:
        """Records a number for programs; see :class:`~t5x_harness.spec.Measure`."""
        self.measures.append(Measure(name, value, unit, of, step))

    def leave_open(self, what: str) -> None:
        """Notes once what could not be judged."""
        if what not in self.not_checked:
            self.not_checked.append(what)

    def find(
        self,
        code: str,
        message: str,
        *,
        location: Location | None = None,
        fix: str | None = None,
        binding: str | None = None,
    ) -> None:
        """Adds an error of this stage; equal errors count once."""
        self.add([Finding(code, Severity.ERROR, self.stage, message, location, fix, binding)])

    def add(self, findings: Iterable[Finding], bound_at: Location | None = None) -> None:
        """Adds findings, except those that the user ignores; equal findings count once.

        Args:
          findings: the findings.
          bound_at: the line of the binding that they are about, whose comments also count.
        """
        for finding in findings:  # one by one, to keep the findings of a rule that stops later
            shown, silenced = split_silenced([finding], self.ignore, self.folder, bound_at=bound_at)
            self.findings += [finding for finding in shown if finding not in self.findings]
            self.silenced += [finding for finding in silenced if finding not in self.silenced]

    def apply(self, rules: Iterable[Rule], subject: Any, place: PlaceOf) -> None:
        """Adds the findings of each rule about a subject, as a part of the stage; see :meth:`attempt`."""
        for rule in rules:
            self.attempt(self._apply, rule, subject, place)

    def _apply(self, rule: Rule, subject: Any, place: PlaceOf) -> None:
        for finding, bound_at in rule.placed_findings(subject, place):
            self.add([finding], bound_at)

    def attempt(self, part: Callable[..., object], *args: Any) -> None:
        """Performs one part of the stage; if it raises, the other parts can still explain why."""
        try:
            part(*args)
        except Exception as error:  # the session reports it
            self.stopped.append(error)

    def end_attempts(self) -> None:
        """Raises the exception of the first part that stopped, if any did.

        Raises:
          Exception: that exception.
        """
        if self.stopped:
            first, *others = self.stopped
            for other in others:
                traceback.print_exception(other, file=sys.stderr)
            raise first

    def end(self, finding: Finding) -> None:
        """Adds the finding for what ended the stage, even if the user ignores its code."""
        self.findings.append(finding)

    def take(self, other: "StageReport") -> None:
        """Adds what another report has: its facts, findings, changes, measures and doubts."""
        for name in ("facts", "findings", "not_checked", "changes", "silenced", "measures", "tables"):
            getattr(self, name).extend(getattr(other, name))

    @property
    def failed(self) -> bool:
        """Whether an error was found."""
        return any(f.severity is Severity.ERROR for f in self.findings)

    def result(self) -> StageResult:
        """Returns the stage's result; see :func:`~t5x_harness.findings.work.judged` for its outcome."""
        result = StageResult(
            stage=self.stage,
            outcome=Outcome.NOT_RUN,
            findings=tuple(merge_tasks(self.findings)),
            facts=tuple(self.facts),
            not_checked=tuple(self.not_checked),
            changes=tuple(self.changes),
            exercised=self.exercised,
            seconds=round(time.monotonic() - self.started, 3),
            silenced=tuple(self.silenced),
            measures=tuple(self.measures),
            tables=tuple(self.tables),
        )
        return judged(result, idle=self.idle, unproved=self.unproved)
