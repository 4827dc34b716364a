"""A check: one question to the environment. Checks register themselves by their code."""

from __future__ import annotations

import abc
import dataclasses
from typing import ClassVar

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


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What one check found.

    Attributes:
      code: the check's.
      title: what it looks at.
      summary: what it established, in a line.
      findings: empty where all is well.
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


class Check(abc.ABC):
    """Base of all checks; a subclass with a code is part of the doctor's round.

    Attributes:
      code: stable id.
      title: what it looks at.
      why: what goes wrong where it is not well, for ``t5x-harness explain``.
      of_image: whether it is about a container image for jobs, and part of the round with ``--image`` only.
    """

    code: ClassVar[str]
    title: ClassVar[str]
    why: ClassVar[str]
    of_image: ClassVar[bool] = False
    _by_code: ClassVar[dict[str, type[Check]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not hasattr(cls, "why"):
            raise TypeError(f"check {cls.__qualname__} ({cls.code}) does not set why")
        other = Check._by_code.get(cls.code, cls)
        if (cls.__module__, cls.__qualname__) != (other.__module__, other.__qualname__):  # not imported once more
            raise TypeError(f"check {cls.__qualname__} has code {cls.code}, which {other.__qualname__} has already")
        Check._by_code[cls.code] = cls

    @classmethod
    def all(cls, *, of_image: bool = False) -> tuple[type[Check], ...]:
        """Returns every check of a round, by code.

        Args:
          of_image: of the round inside a container image.
        """
        return tuple(check for _, check in sorted(Check._by_code.items()) if check.of_image == of_image)

    @classmethod
    def command(cls) -> str:
        """Returns the words after ``t5x-harness`` that run it."""
        return "doctor --image" if cls.of_image else "doctor"

    @abc.abstractmethod
    def run(self, environment: Environment) -> Diagnosis:
        """Looks at the environment."""

    def diagnosis(self, summary: str, *findings: Defect) -> Diagnosis:
        """Returns what this check found, under its code and title."""
        return Diagnosis(self.code, self.title, summary, findings)
