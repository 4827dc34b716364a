"""Sets up programs that the harness starts to make their own stand-ins and to shrink their own config."""

from __future__ import annotations

from t5x_harness.execute import program_shrink, program_standins
from t5x_harness.variables import SHRINK_VARIABLE, STANDINS_VARIABLE, START_VARIABLE


def variables(project: str = "", *, shrink: bool = False) -> dict[str, str]:
    """Returns the environment variables for a program.

    Args:
      project: the folder of the project whose processes make stand-ins, with the pyproject.toml that declares rows for
        Hugging Face's datasets; empty for a program that makes none.
      shrink: whether programs of T5X shrink their config.
    """
    asked = bool(project) or shrink
    return {
        STANDINS_VARIABLE: project,
        SHRINK_VARIABLE: program_shrink.ON if shrink else program_shrink.OFF,
        START_VARIABLE: f"{__name__}:{install.__name__}" if asked else "",
    }


def install() -> None:
    """Sets up this process."""
    program_standins.install()
    program_shrink.install()
