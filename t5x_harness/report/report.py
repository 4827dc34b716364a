"""The value that every writer writes."""

from __future__ import annotations

import dataclasses

from t5x_harness.findings.printable import printable
from t5x_harness.spec import Finding, Outcome, RunResult, Severity, Stage


@dataclasses.dataclass(frozen=True)
class RunRow:
    """One run, with the name to show for it: its own, or where it comes from if several runs share that."""

    name: str
    result: RunResult

    @property
    def mesh(self) -> str:
        """The mesh as the plan stage established it; empty if the run did not come so far."""
        facts = (fact for stage in self.result.stages if stage.stage is Stage.PLAN for fact in stage.facts)
        return next((value for name, value in facts if name == "mesh"), "")

    @property
    def seconds(self) -> float:
        """How long the caller waited for it; the stages' own time if that was not measured."""
        return self.result.seconds or sum(stage.seconds for stage in self.result.stages)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What all stages found, each thing once."""
        return tuple(dict.fromkeys(f for stage in self.result.stages for f in stage.findings))

    @property
    def not_checked(self) -> tuple[str, ...]:
        """What no stage could judge, each thing once; the stages that were not run in one line."""
        run = [stage for stage in self.result.stages if stage.outcome is not Outcome.NOT_RUN]
        failed = next((s.stage for s in run if s.outcome is Outcome.FAILED), None)
        # A stage that was not run and comes after no failure has reasons of its own.
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
      results: what the runs came to.
      origins: where each run was asked for, such as the node of a test; by default its last gin file.
      seconds: how long was waited for all of it; by default the sum of the runs.
      import_seconds: how long of that was waited for the stack to be imported.
    """

    results: tuple[RunResult, ...]
    origins: tuple[str, ...] = ()
    seconds: float | None = None
    import_seconds: float = 0.0

    @property
    def rows(self) -> tuple[RunRow, ...]:
        """The runs with unique names."""
        origins = self.origins or tuple(next(reversed(r.spec.gin_files), r.spec.name) for r in self.results)
        by_name: dict[str, set[str]] = {}
        for result, origin in zip(self.results, origins, strict=True):
            by_name.setdefault(result.spec.name, set()).add(origin)
        names = [
            origin if len(by_name[result.spec.name]) > 1 else result.spec.name
            for result, origin in zip(self.results, origins, strict=True)
        ]
        shown = (
            f"{name} ({names[: index + 1].count(name)})" if names.count(name) > 1 else name
            for index, name in enumerate(names)
        )
        return tuple(RunRow(printable(name), result) for name, result in zip(shown, self.results, strict=True))

    @property
    def waited(self) -> float:
        """How long was waited for all of it."""
        return self.seconds if self.seconds is not None else sum(row.seconds for row in self.rows)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that any of the runs has, in order."""
        present = {stage.stage for result in self.results for stage in result.stages}
        return tuple(stage for stage in Stage if stage in present)

    @property
    def passed(self) -> bool:
        """Whether there was something to run and all of it passed."""
        return bool(self.results) and all(result.passed for result in self.results)

    def count(self, severity: Severity) -> int:
        """Returns how many findings of one severity there are over all runs."""
        return sum(f.severity is severity for row in self.rows for f in row.findings)

    def count_runs(self, outcome: Outcome) -> int:
        """Returns how many runs passed, failed, or were not run to their end."""
        return sum(run_outcome(result) is outcome for result in self.results)


def run_outcome(result: RunResult) -> Outcome:
    """Returns how a run ended: failed if a stage failed, not run if there was none, or one was cut off or in vain."""
    if any(stage.outcome is Outcome.FAILED for stage in result.stages):
        return Outcome.FAILED
    return Outcome.PASSED if result.passed and result.stages else Outcome.NOT_RUN
