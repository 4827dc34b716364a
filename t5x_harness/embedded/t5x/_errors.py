"""Mistakes in a user's config, which are found before work is lost."""

from __future__ import annotations


def with_hint(error: Exception, hint: str) -> Exception:
    """Adds a note that a traceback shows below an error; the error's own text stays exactly T5X's."""
    error.add_note(hint)
    return error


class ConfigError(ValueError):
    """A config has values that cannot work together.

    The message names the parameters, their values and the smallest change that fixes them; the scripts print it
    without a traceback, because the cause is in the config and not in the code.
    """
