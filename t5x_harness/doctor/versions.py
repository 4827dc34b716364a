"""Versions that do not work together, or that the recorded behaviour was not made with."""

from __future__ import annotations

from packaging.requirements import Requirement

from t5x_harness.doctor.check import Defect, Looked, check, error, looked, warning
from t5x_harness.doctor.clashes import RIVALS
from t5x_harness.doctor.environment import Environment, required
from t5x_harness.spec import Severity

_INSTALL_ALL = "python -m pip install 't5x-harness[t5x]'"
# What runs under T5X and is not named by the extra, because another of the stack chooses its version.
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
                findings.append(
                    error(
                        f"{dist} requires {requirement.name}{requirement.specifier}, but {version} is installed",
                        f"python -m pip install '{requirement.name}{requirement.specifier}'",
                    )
                )
    shown = ", ".join(str(d) for d in present if d.name in ("jax", "jaxlib", "numpy", "protobuf"))
    return looked(shown or "nothing of the stack is installed", *findings)


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
        return looked(
            "not checked: t5x-harness itself is not installed, so its bounds cannot be read",
            warning(
                "t5x-harness runs from a folder without its metadata",
                _INSTALL_ALL,
            ),
        )
    missing = [b for b in bounds if not _present(environment, b.name)]
    if len(missing) == len(bounds):
        return looked(
            "nothing of the extra t5x is installed: lint works, runs do not",
            warning("runs need the extra t5x", _INSTALL_ALL),
        )
    findings = [f for b in bounds if (f := _outside(environment, b))]
    if missing:
        names = ", ".join(b.name for b in missing)
        verb, them = ("is", "it") if len(missing) == 1 else ("are", "them")
        fix = _install(missing[0]) if len(missing) == 1 else _INSTALL_ALL
        findings.insert(0, error(f"{names} {verb} not installed, and runs need {them}", fix))
    return looked(f"{len(bounds)} bounds of the extra t5x", *findings)


def _present(environment: Environment, name: str) -> bool:
    # A rival that brings the same package is what ENV01 reports.
    names = {name, *(rival for kept, rival in RIVALS if kept == name)}
    return any(n in environment.by_name for n in names)


def _outside(environment: Environment, bound: Requirement) -> Defect | None:
    version = environment.version(bound.name)
    if version is None or _allows(bound, version):
        return None
    # An installed T5X may be made for other versions; the embedded one is not.
    embedded = environment.runtime.kind == "embedded"
    return Defect(
        Severity.ERROR if embedded else Severity.WARNING,
        f"{bound.name} {version} is installed, but the recorded behaviour was made with {bound.name}{bound.specifier}"
        + (", and the embedded T5X is written for that" if embedded else ": numbers may differ from the record"),
        _install(bound),
    )


def _install(bound: Requirement) -> str:
    return f"python -m pip install '{bound.name}{bound.specifier}'"


def _allows(requirement: Requirement, version: str) -> bool:
    return requirement.specifier.contains(version, prereleases=True)
