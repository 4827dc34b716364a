"""What the harness says of a mutant, judged by what T5X does with it."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from t5x_harness.spec import Finding, RunResult, Severity, Stage

from .mutant import Mutant
from .verdict import Verdict

BEFORE = (Stage.LINT, Stage.RESOLVE, Stage.PLAN)
"""The stages that run no step."""

_NEUTRAL = ("mesh", "checkpoint")
"""Classes in which what is right changes nothing either."""

_SHARES = ("DROPOUT_RATE", "dropout_rate")
_BEYOND = ("huge", "infinite")
"""Shares above 1: everything is dropped, which four steps of a small network do not show."""

_OWN = "RUN12"
_CODES_OF_TIME = ("RUN06",)
_UNNAMED = ("RUN01", "RUN12")


@dataclasses.dataclass(frozen=True)
class Said:
    """One finding, as far as it matters here.

    Attributes:
      code: its code.
      severity: how bad it is.
      stage: the stage that found it.
      place: ``file:line`` of its location; empty for none.
      binding: the binding at fault; empty for none.
      text: its message and its fix.
    """

    code: str
    severity: str
    stage: str
    place: str
    binding: str
    text: str

    @classmethod
    def of(cls, finding: Finding) -> Self:
        """Takes what matters of a finding."""
        place, text = str(finding.location or ""), f"{finding.message} | {finding.fix or ''}"
        return cls(finding.code, finding.severity, finding.stage, place, finding.binding or "", text)

    def names(self, mutant: Mutant) -> bool:
        """Returns whether it points at the mistake: at its line, or at the parameter, macro or place by name."""
        if mutant.line and self.place == f"{mutant.file}:{mutant.line}":
            return True
        return any(
            name in (self.place, self.binding, self.binding.rpartition(".")[2]) or name in self.text
            for name in mutant.names
        )


@dataclasses.dataclass(frozen=True)
class Judgment:
    """One mutant, what T5X does, what the harness says, and whether that is right.

    Attributes:
      mutant: the mutant.
      verdict: what T5X does.
      said: the findings that the unchanged case does not have.
      failed: whether the harness refuses it.
    """

    mutant: Mutant
    verdict: Verdict
    said: tuple[Said, ...]
    failed: bool

    @classmethod
    def of(cls, mutant: Mutant, verdict: Verdict, result: RunResult, usual: frozenset[str]) -> Self:
        """Judges a run of the harness.

        Args:
          mutant: the mutant.
          verdict: what T5X does with it.
          result: the run of the harness.
          usual: the codes of the findings that are no errors of the unchanged case.
        """
        found = [Said.of(finding) for stage in result.stages for finding in stage.findings]
        new = tuple(each for each in found if each.severity == Severity.ERROR or each.code not in usual)
        return cls(mutant, verdict, new, not result.passed)

    @property
    def errors(self) -> tuple[Said, ...]:
        """The errors among the findings."""
        return tuple(each for each in self.said if each.severity == Severity.ERROR)

    @property
    def is_own_failure(self) -> bool:
        """Whether the harness itself has failed."""
        return any(each.code == _OWN for each in self.said)

    @property
    def hangs(self) -> bool:
        """Whether a stage ran into its limit although T5X ends."""
        return any(each.code in _CODES_OF_TIME for each in self.said)

    @property
    def is_caught(self) -> bool:
        """Whether a mistake that wastes a job is an error."""
        return self.verdict.ending.is_failure and bool(self.errors)

    @property
    def is_early(self) -> bool:
        """Whether that error comes before the first step, with a cause."""
        early = [each for each in self.errors if each.stage in BEFORE]
        return self.verdict.ending.is_failure and any(
            each.code not in _UNNAMED or each.names(self.mutant) for each in early
        )

    @property
    def is_placed(self) -> bool:
        """Whether an error points at the mistake."""
        return self.verdict.ending.is_failure and any(each.names(self.mutant) for each in self.errors)

    @property
    def is_fine(self) -> bool:
        """Whether T5X accepts it and uses it."""
        if self.verdict.ending.is_silent:  # an error says of a wrong value that is not used that it is wrong
            return self.mutant.group in _NEUTRAL and not self.errors
        name, word = self.mutant.names[-1].rpartition(".")[2], self.mutant.kind.partition(": ")[2]
        is_beyond_all = name in _SHARES and word.startswith(_BEYOND)
        return self.verdict.ending == "fine" and not is_beyond_all

    @property
    def is_false_alarm(self) -> bool:
        """Whether the harness refuses what is fine."""
        return self.is_fine and bool(self.errors)

    @property
    def is_silent(self) -> bool:
        """Whether it has no effect though it should have one, or makes something constant."""
        return self.verdict.ending.is_silent and not self.is_fine

    @property
    def is_noted(self) -> bool:
        """Whether anything is said of what has no effect or is constant."""
        return self.is_silent and any(each.names(self.mutant) for each in self.said)

    def to_json(self) -> dict[str, Any]:
        """Returns the judgment as JSON values, without what T5X wrote."""
        verdict = {**self.verdict.to_json(), "values": {}}
        said = [dataclasses.asdict(each) for each in self.said]
        return {"mutant": dataclasses.asdict(self.mutant), "verdict": verdict, "said": said, "failed": self.failed}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Reads the values of :meth:`to_json`."""
        mutant = Mutant(**{**value["mutant"], "names": tuple(value["mutant"]["names"])})
        said = tuple(Said(**each) for each in value["said"])
        return cls(mutant, Verdict.from_json(value["verdict"]), said, value["failed"])
