"""Private names of other libraries: whether the installed releases still have those that the harness uses."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.doctor.check import Check, Defect, Diagnosis
from t5x_harness.doctor.environment import Environment
from t5x_harness.spec import Severity
from t5x_harness.upstream.names import LIBRARIES


class PrivateNames(Check):
    """Names that the harness uses although their libraries may take them away in any release."""

    code = "ENV11"
    title = "private names in use"
    why = (
        "For what a library offers no public way, the harness uses names that it may take away in any release, each in "
        "one function of t5x_harness/upstream/. Where one is gone, that function fails, or a run takes longer. "
        "The files of the installed release are searched; nothing is imported."
    )

    def run(self, environment: Environment) -> Diagnosis:
        """Looks for each in the files of the library that it belongs to."""
        present: dict[str, None] = {}
        found = every = 0
        findings: list[Defect] = []
        for library in LIBRARIES:
            installed = environment.by_name.get(library.name)
            missing = library.missing(installed.folder) if installed else None
            if installed is None or missing is None:
                continue
            present[str(installed)] = None
            found, every = found + library.count - len(missing), every + library.count
            findings += self._findings(environment, str(installed), library.name, missing)
        summary = f"{found} of {every} are there: {', '.join(present)}" if present else "no library with any is there"
        return self.diagnosis(summary, *findings)

    def _findings(
        self, environment: Environment, installed: str, name: str, missing: tuple[str, ...]
    ) -> Iterator[Defect]:
        if not missing:
            return
        bounds = environment.recorded_requirement(name)
        version = f"{name}{bounds.specifier}" if bounds else f"{name}<{installed.rpartition(' ')[2]}"
        yield Defect(
            Severity.WARNING,
            f"{installed} has no {', '.join(missing)}: what the harness does with it may fail, or take longer",
            f"python -m pip install '{version}'",
        )
