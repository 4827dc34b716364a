"""A check: one question to the environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from t5x_harness.doctor.environment import Environment
from t5x_harness.spec import Severity


@dataclasses.dataclass(frozen=True)
class Defect:
    """One thing that is wrong with the environment.

    Attributes:
      severity: an error keeps runs from being right; a warning may.
      message: what is wrong, with the versions that disagree.
      fix: the command that fixes it.
    """

    severity: Severity
    message: str
    fix: str


def error(message: str, fix: str) -> Defect:
    """Builds a defect that keeps runs from being right."""
    return Defect(Severity.ERROR, message, fix)


def warning(message: str, fix: str) -> Defect:
    """Builds a defect that may keep runs from being right."""
    return Defect(Severity.WARNING, message, fix)


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What one check established.

    Attributes:
      code: the check's.
      title: what it looks at.
      summary: what it established, in a line.
      findings: empty if all is well.
    """

    code: str
    title: str
    summary: str
    findings: tuple[Defect, ...] = ()

    @property
    def status(self) -> str:
        """``error``, ``warning`` or ``ok``: the worst of the findings."""
        severities = {f.severity for f in self.findings}
        worst = next((s for s in (Severity.ERROR, Severity.WARNING) if s in severities), None)
        return str(worst) if worst else "ok"


Looked = tuple[str, Sequence[Defect]]
"""The summary of what a check established, and its findings."""


@dataclasses.dataclass(frozen=True)
class Check:
    """A check of the doctor's round.

    Attributes:
      code: stable id.
      title: what it looks at.
      why: what goes wrong if it is not well, for ``t5x-harness explain``.
      of_image: whether it is about a container image for jobs, and part of the round with ``--image`` only.
      look: looks at the environment.
    """

    code: str
    title: str
    why: str
    of_image: bool
    look: Callable[[Environment], Looked]

    @property
    def command(self) -> str:
        """The words after ``t5x-harness`` that run it."""
        return "doctor --image" if self.of_image else "doctor"

    def run(self, environment: Environment) -> Diagnosis:
        """Looks at the environment."""
        summary, findings = self.look(environment)
        return Diagnosis(self.code, self.title, summary, tuple(findings))


def check(
    code: str, title: str, *, why: str, of_image: bool = False
) -> Callable[[Callable[[Environment], Looked]], Check]:
    """Makes a check of a function that looks at the environment; see :class:`Check`."""
    return lambda look: Check(code, title, why, of_image, look)
