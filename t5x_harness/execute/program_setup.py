"""What programs that the harness starts do for themselves: make stand-ins, make their config small."""

from __future__ import annotations

from t5x_harness.execute import program_shrink, program_standins
from t5x_harness.variables import SHRINK_VARIABLE, STANDINS_VARIABLE, START_VARIABLE


def variables(project: str = "", *, shrink: bool = False) -> dict[str, str]:
    """Returns the variables of a program.

    Args:
      project: the folder of the project whose processes make stand-ins, with the pyproject.toml that has rows for
        Hugging Face's datasets; empty for a program that makes none.
      shrink: whether programs of T5X make their config small.
    """
    asked = bool(project) or shrink
    return {
        STANDINS_VARIABLE: project,
        SHRINK_VARIABLE: program_shrink.ON if shrink else program_shrink.OFF,
        START_VARIABLE: f"{__name__}:{install.__name__}" if asked else "",
    }


def install() -> None:
    """Does so in this process."""
    program_standins.install()
    program_shrink.install()
