"""A check of the doctor, and the environment that it looks at: what is installed according to the metadata."""

import dataclasses
import functools
import importlib.metadata
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from t5x_harness.runtime.choice import Runtime, brings_t5x, find_runtime, shadow_of_t5x
from t5x_harness.spec import Severity

_HARNESS = "t5x-harness"


@dataclasses.dataclass(frozen=True)
class Installed:
    """One installed distribution.

    Attributes:
      name: the normalized name: lower case, with hyphens.
      version: the version in its metadata.
      folder: the folder that it is installed in.
      requires: its requirements, as text.
    """

    name: str
    version: str
    folder: str
    requires: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclasses.dataclass(frozen=True)
class Environment:
    """The environment that the doctor looks at.

    Attributes:
      distributions: everything installed, in the order of the import path; a name may occur twice.
      runtime: the T5X that ``import t5x`` imports under the harness.
      shadow: a folder or module that has only T5X's name and precedes it on the import path; empty for none.
      placeholders: the distributions named ``t5x`` that contain no package.
      recorded: the requirements that the behavior of T5X was recorded with: the harness's extra ``t5x``.
      variables: the environment variables.
    """

    distributions: tuple[Installed, ...]
    runtime: Runtime
    shadow: str = ""
    placeholders: tuple[Installed, ...] = ()
    recorded: tuple[str, ...] = ()
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(
        cls,
        paths: Sequence[str] | None = None,
        runtime: Runtime | None = None,
        variables: Mapping[str, str] | None = None,
        recorded: Sequence[str] | None = None,
        folders: Sequence[str] = (),
    ) -> Self:
        """Reads the environment of this process.

        Args:
          paths: the folders with the distributions' metadata; the import path by default.
          runtime: the T5X in use; found by default.
          variables: the environment variables; those of the process by default.
          recorded: the bounds of the record; those that the installed harness names by default.
          folders: the folders in front of the import path of runs.
        """
        found = list(importlib.metadata.distributions(path=list(sys.path if paths is None else paths)))
        known = [(_installed(dist), dist) for dist in found if dist.metadata["Name"]]
        return cls(
            distributions=tuple(installed for installed, _ in known),
            runtime=runtime or find_runtime("auto", folders),
            shadow=shadow_of_t5x(folders),
            placeholders=tuple(i for i, dist in known if i.name == "t5x" and not brings_t5x(dist)),
            recorded=_recorded() if recorded is None else tuple(recorded),
            variables=dict(os.environ if variables is None else variables),
        )

    @functools.cached_property
    def by_name(self) -> Mapping[str, Installed]:
        """The distributions that Python would use, by name: the first of each on the import path."""
        return {d.name: d for d in reversed(self.distributions)}

    def version(self, name: str) -> str | None:
        """Returns a distribution's version; None if it is not installed."""
        found = self.by_name.get(name)
        return found.version if found else None

    def recorded_requirement(self, name: str) -> Requirement | None:
        """Returns the bounds that the record sets for a distribution; None if it sets none."""
        return next((r for r in required(self.recorded, "t5x") if r.name == name), None)


def required(requirements: Sequence[str], extra: str = "") -> Iterator[Requirement]:
    """Yields the requirements that apply to this machine, with normalized names. Unreadable ones are left out."""
    for text in requirements:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue  # old metadata may contain what today's standard refuses; pip also skips it
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            requirement.name = canonicalize_name(requirement.name)
            yield requirement


def _installed(dist: importlib.metadata.Distribution) -> Installed:
    return Installed(
        name=canonicalize_name(dist.metadata["Name"]),
        version=dist.version,
        folder=str(dist.locate_file("")),
        requires=tuple(dist.requires or ()),
    )


def _recorded() -> tuple[str, ...]:
    try:
        requirements = importlib.metadata.requires(_HARNESS) or []
    except importlib.metadata.PackageNotFoundError:
        return ()
    return tuple(r for r in requirements if "extra" in r)


@dataclasses.dataclass(frozen=True)
class Defect:
    """One thing that is wrong with the environment.

    Attributes:
      severity: an error if it prevents correct runs, a warning if it may.
      message: a description of the defect, with the versions that disagree.
      fix: the command that fixes it.
    """

    severity: Severity
    message: str
    fix: str


def error(message: str, fix: str) -> Defect:
    """Builds a defect that prevents correct runs."""
    return Defect(Severity.ERROR, message, fix)


def warning(message: str, fix: str) -> Defect:
    """Builds a defect that may prevent correct runs."""
    return Defect(Severity.WARNING, message, fix)


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The result of one check.

    Attributes:
      code: the code of the check.
      title: the subject of the check.
      summary: its result in one line.
      findings: the defects; empty if all is well.
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
"""The summary of a check's result, and its findings."""


@dataclasses.dataclass(frozen=True)
class Check:
    """A check of the doctor's round.

    Attributes:
      code: its stable id.
      title: its subject.
      why: what goes wrong if the check fails, for ``t5x-harness explain``.
      of_image: whether it is about a container image for jobs, and so part of the round only with ``--image``.
      look: the function that looks at the environment.
    """

    code: str
    title: str
    why: str
    of_image: bool
    look: Callable[[Environment], Looked]

    @property
    def command(self) -> str:
        """The arguments of ``t5x-harness`` that run it."""
        return "doctor --image" if self.of_image else "doctor"

    def run(self, environment: Environment) -> Diagnosis:
        """Looks at the environment."""
        summary, findings = self.look(environment)
        return Diagnosis(self.code, self.title, summary, tuple(findings))


def check(
    code: str, title: str, *, why: str, of_image: bool = False
) -> Callable[[Callable[[Environment], Looked]], Check]:
    """Makes a check from a function that looks at the environment; see :class:`Check`."""
    return lambda look: Check(code, title, why, of_image, look)
