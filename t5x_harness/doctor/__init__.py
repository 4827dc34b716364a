"""What in this environment does not work together, and how to fix it.

Everything is read from the metadata of the installed distributions and from the environment. Nothing is imported into
this process, so the doctor also works where the patient does not.
"""

from __future__ import annotations

# Importing a module of checks registers them.
from t5x_harness.doctor import (  # noqa: F401
    clashes,
    fuse,
    image,
    loading,
    machine,
    private_names,
    runtime,
    t5x_interface,
    versions,
)
from t5x_harness.doctor.check import Check, Defect, Diagnosis
from t5x_harness.doctor.environment import Environment, Installed

__all__ = ["Check", "Defect", "Diagnosis", "Environment", "Installed", "diagnose"]


def diagnose(environment: Environment, *, of_image: bool = False) -> tuple[Diagnosis, ...]:
    """Returns what every check of a round found, by code.

    Args:
      environment: what is looked at.
      of_image: whether it is a container image's; PyPI's placeholder has no place there either.
    """
    checks: tuple[type[Check], ...] = (*Check.all(of_image=True), runtime.T5xPlaceholder) if of_image else Check.all()
    return tuple(check().run(environment) for check in checks)
