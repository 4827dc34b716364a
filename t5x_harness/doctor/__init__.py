"""The doctor: finds what does not work together in this environment, and how to fix it.

Everything is read from the metadata of the installed distributions and from the environment. Nothing is imported into
this process, so the doctor also works where the patient does not.
"""

from t5x_harness.doctor import compile_cache, image, machine, t5x, versions
from t5x_harness.doctor.check import Check, Diagnosis, Environment

_FOUND = [value for module in (compile_cache, image, machine, t5x, versions) for value in vars(module).values()]
CHECKS = tuple(sorted((value for value in _FOUND if isinstance(value, Check)), key=lambda check: check.code))
"""All checks, by code."""


def diagnose(environment: Environment, *, of_image: bool = False) -> tuple[Diagnosis, ...]:
    """Returns what each check of a round found, by code.

    Args:
      environment: the environment to check.
      of_image: whether it is the environment of a container image, which also must not contain PyPI's placeholder.
    """
    checks = [check for check in CHECKS if check.of_image == of_image]
    return tuple(check.run(environment) for check in (*checks, *([t5x.placeholder] if of_image else [])))
