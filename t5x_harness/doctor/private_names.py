"""Private names of other libraries: whether the installed releases still have those that the harness uses."""

from __future__ import annotations

from t5x_harness.doctor.check import Defect, Looked, check, looked, warning
from t5x_harness.doctor.environment import Environment
from t5x_harness.upstream.names import LIBRARIES


@check(
    "ENV11",
    "private names in use",
    why=(
        "For what a library offers no public way, the harness uses names that it may take away in any release, each in "
        "one function of t5x_harness/upstream/. Where one is gone, that function fails, or a run takes longer. "
        "The files of the installed release are searched; nothing is imported."
    ),
)
def private_names(environment: Environment) -> Looked:
    """Looks for each name in the files of the library that it belongs to."""
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
        if missing:
            bounds = environment.recorded_requirement(library.name)
            version = f"{library.name}{bounds.specifier if bounds else f'<{installed.version}'}"
            findings.append(
                warning(
                    f"{installed} has no {', '.join(missing)}: what the harness does with it may fail, or take longer",
                    f"python -m pip install '{version}'",
                )
            )
    summary = f"{found} of {every} are there: {', '.join(present)}" if present else "no library with any is there"
    return looked(summary, *findings)
