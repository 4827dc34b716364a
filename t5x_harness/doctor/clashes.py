"""Distributions that overwrite each other's files."""

from __future__ import annotations

import collections

from t5x_harness.doctor.check import Defect, Looked, check, error, looked, warning
from t5x_harness.doctor.environment import Environment, Installed

# The first brings the package by the name that the recorded behaviour and the other packages ask for.
RIVALS = (
    ("seqio", "seqio-nightly"),
    ("tensorflow-datasets", "tfds-nightly"),
    ("tensorflow", "tensorflow-cpu"),
)


@check(
    "ENV01",
    "packages overwriting each other",
    why=(
        "Two distributions, such as seqio and seqio-nightly, can bring the same package: whichever was installed last "
        "has overwritten files of the other, and what is imported is a mixture. Removing one takes the files of both, "
        "so the one to keep has to be installed again."
    ),
)
def overwritten_packages(environment: Environment) -> Looked:
    """Looks for two distributions that bring the same package, and for the rival alone."""
    findings = [f for kept, rival in RIVALS if (f := _clash(environment, kept, rival))]
    return looked(f"{len(RIVALS)} pairs looked for", *findings)


def _clash(environment: Environment, kept: str, rival: str) -> Defect | None:
    mine, theirs = environment.by_name.get(kept), environment.by_name.get(rival)
    if theirs is None:
        return None
    wanted = environment.recorded_requirement(kept)
    target = f"'{kept}{wanted.specifier}'" if wanted else kept
    askers = environment.requirers(rival)
    asked = f" ({', '.join(str(a) for a in askers)} requires {rival})" if askers else ""
    again = "".join(
        f"; with {a.name}, use --no-deps: pip install --no-deps {a.name}=={a.version}, or {rival} comes back"
        for a in askers
    )
    if mine is None:
        return warning(
            f"{theirs} stands in for {kept}{asked}; what asks for {kept} by name will install it over the same files",
            f"python -m pip uninstall -y {rival} && python -m pip install {target}{again}",
        )
    return error(
        f"{mine} and {theirs} are both installed and bring the same files{asked}:"
        " what is imported is a mixture, or the one that was installed last",
        # Removing one takes the files of both, so the one to keep is installed anew.
        f"python -m pip uninstall -y {rival} {kept} && python -m pip install --no-deps {target}{again}",
    )


@check(
    "ENV02",
    "distributions recorded twice",
    why=(
        "A distribution is recorded twice in one folder, as an interrupted upgrade leaves it: pip and the code that "
        "runs may then see different versions."
    ),
)
def duplicate_metadata(environment: Environment) -> Looked:
    """Looks for names that come twice in one folder."""
    places: dict[tuple[str, str], list[Installed]] = collections.defaultdict(list)
    for dist in environment.distributions:
        places[dist.name, dist.folder].append(dist)
    findings = [
        error(
            f"{name} is recorded with versions {', '.join(sorted({d.version for d in dists}))} in {folder}:"
            " pip and the code that runs may see different ones",
            f"python -m pip install --force-reinstall --no-deps {name}=={dists[0].version}",
        )
        for (name, folder), dists in places.items()
        if len({d.version for d in dists}) > 1
    ]
    return looked(f"{len(environment.by_name)} distributions", *findings)
