"""The mistakes that a user can make in a config and that the driver finds before work is lost."""

from __future__ import annotations


def with_hint(error: Exception, hint: str) -> Exception:
    """Adds to an error, whose own text is T5X's to the letter, what a traceback shows below it."""
    error.add_note(hint)
    return error


class ConfigError(ValueError):
    """Values of a config that cannot work together.

    The message names the parameters, their values and the smallest change that fixes them; the scripts print it
    without a traceback, because the cause is in the config and not in the code.
    """
