"""Numbers above zero, as options of commands and of pytest take them."""

from __future__ import annotations

__all__ = ["positive_number"]


def positive_number(text: str) -> float | None:
    """A number above zero; None if the text is something else."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number > 0 else None
