"""Checks for distributions that overwrite each other's files, do not work together, or differ from the record."""

import collections

from packaging.requirements import Requirement

from t5x_harness.doctor.check import Defect, Environment, Installed, Looked, check, error, required, warning
from t5x_harness.spec import Severity

# The first one brings the package under the name that the record and the other packages require.
RIVALS = (
    ("seqio", "seqio-nightly"),
    ("tensorflow-datasets", "tfds-nightly"),
    ("tensorflow", "tensorflow-cpu"),
    ("tensorflow", "tf-nightly"),
    ("tensorflow", "tf-nightly-cpu"),
    ("tensorflow-text", "tensorflow-text-nightly"),
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
    """Looks for two distributions that bring the same package, and for a rival that is installed alone."""
    findings = [f for kept, rival in RIVALS if (f := _clash(environment, kept, rival))]
    return f"{len(RIVALS)} pairs looked for", findings


def _clash(environment: Environment, kept: str, rival: str) -> Defect | None:
    mine, theirs = environment.by_name.get(kept), environment.by_name.get(rival)
    if theirs is None:
        return None
    wanted = environment.recorded_requirement(kept)
    target = f"'{kept}{wanted.specifier}'" if wanted else kept
    askers = [d for d in environment.by_name.values() if any(r.name == rival for r in required(d.requires))]
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
        # Removing one removes the files of both, so the one to keep is installed again.
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
    """Looks for names that occur twice in one folder."""
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
    return f"{len(environment.by_name)} distributions", findings


_INSTALL_ALL = "python -m pip install 't5x-harness[t5x]'"
# Packages that T5X runs on, which the extra does not name: another package of the stack chooses their versions.
_UNDERNEATH = ("chex", "jaxlib", "ml-dtypes", "numpy", "protobuf", "tensorstore")


@check(
    "ENV03",
    "versions working together",
    why=(
        "One part of the stack refuses the installed version of another by its own metadata. pip installs such a pair "
        "where it is asked for each alone."
    ),
)
def incompatible_versions(environment: Environment) -> Looked:
    """Compares every requirement within the stack with what is installed."""
    stack = {r.name for r in required(environment.recorded, "t5x")} | set(_UNDERNEATH)
    present = [d for name, d in sorted(environment.by_name.items()) if name in stack]
    findings = []
    for dist in present:
        for requirement in required(dist.requires):
            version = environment.version(requirement.name)
            if requirement.name in stack and version is not None and not _allows(requirement, version):
                asked = f"{requirement.name}{requirement.specifier}"
                findings.append(error(f"{dist} requires {asked}, but {version} is installed", _install(requirement)))
    shown = ", ".join(str(d) for d in present if d.name in ("jax", "jaxlib", "numpy", "protobuf"))
    return shown or "nothing of the stack is installed", findings


@check(
    "ENV04",
    "versions of the record",
    why=(
        "The behavior of T5X that runs are compared with was recorded with the versions that the extra `t5x` names. "
        "With others the embedded T5X may not work, and the numbers of an installed one may differ."
    ),
)
def outside_the_record(environment: Environment) -> Looked:
    """Compares what is installed with the bounds of the harness's extra ``t5x``."""
    bounds = list(required(environment.recorded, "t5x"))
    if not bounds:
        unread = warning("t5x-harness runs from a folder without its metadata", _INSTALL_ALL)
        return "not checked: t5x-harness itself is not installed, so its bounds cannot be read", [unread]
    # ENV01 reports a rival that brings the same package.
    brought = {kept for kept, rival in RIVALS if rival in environment.by_name} | environment.by_name.keys()
    missing = [bound for bound in bounds if bound.name not in brought]
    if len(missing) == len(bounds):
        bare = warning("runs need the extra t5x", _INSTALL_ALL)
        return "nothing of the extra t5x is installed: lint works, runs do not", [bare]
    findings = [f for b in bounds if (f := _outside(environment, b))]
    if missing:
        names = ", ".join(b.name for b in missing)
        verb, them = ("is", "it") if len(missing) == 1 else ("are", "them")
        fix = _install(missing[0]) if len(missing) == 1 else _INSTALL_ALL
        findings.insert(0, error(f"{names} {verb} not installed, and runs need {them}", fix))
    return f"{len(bounds)} bounds of the extra t5x", findings


def _outside(environment: Environment, bound: Requirement) -> Defect | None:
    version = environment.version(bound.name)
    if version is None or _allows(bound, version):
        return None
    # An installed T5X may be built for other versions; the embedded one is not.
    embedded = environment.runtime.kind == "embedded"
    return Defect(
        Severity.ERROR if embedded else Severity.WARNING,
        f"{bound.name} {version} is installed, but the recorded behavior was made with {bound.name}{bound.specifier}"
        + (", and the embedded T5X is written for that" if embedded else ": numbers may differ from the record"),
        _install(bound),
    )


def _install(bound: Requirement) -> str:
    return f"python -m pip install '{bound.name}{bound.specifier}'"


def _allows(requirement: Requirement, version: str) -> bool:
    return requirement.specifier.contains(version, prereleases=True)
