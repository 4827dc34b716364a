"""Whose code a source file is: the user's, the harness's, T5X's, or that of another library."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

USER = "user"
HARNESS = "t5x-harness"
PYTHON = "Python"

_OURS = Path(__file__).parents[1]
_NAMES = {
    "t5x": "T5X",
    "seqio": "SeqIO",
    "gin": "Gin",
    "flax": "Flax",
    "optax": "optax",
    "airio": "airio",
    "t5": "T5",
    "orbax": "orbax",
    "clu": "clu",
    "jax": "JAX",
    "jaxlib": "JAX",
    "tensorflow": "TensorFlow",
    "tensorflow_datasets": "TFDS",
}
"""Libraries by the package that they are imported as; they may be anywhere, such as in a checkout."""

FRONT = ("T5X", "SeqIO", "Gin", "Flax", "optax", "airio", "T5")
"""Libraries whose functions configs name; what is below them says little about a config."""


def party_of(file: str) -> str:
    """Returns the name of the party that a source file belongs to.

    Args:
      file: the file as a traceback names it.

    Returns:
      :data:`USER`, :data:`HARNESS`, :data:`PYTHON`, the name of a known library, or the package of another one.
    """
    if file.startswith("<") or "__autograph_generated_" in file:
        return PYTHON
    path = Path(file)
    for package, name in _NAMES.items():
        if any(path.is_relative_to(folder) for folder in _folders(package)):
            return name
    if path.is_relative_to(_OURS):
        return HARNESS
    for folder in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        if path.is_relative_to(folder):
            return path.relative_to(folder).parts[0]
    libraries = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    return PYTHON if any(path.is_relative_to(folder) for folder in libraries) else USER


def is_users(file: str) -> bool:
    """Tells whether a source file is the user's, and not an installed library's, T5X's or the harness's."""
    return party_of(file) == USER


def shown_path(file: str) -> str:
    """Returns a path as the user would write it: relative if it is below the working directory."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def library_path(file: str) -> str:
    """Returns a path that begins with the package for a known library's file, else as the user would write it."""
    for package in _NAMES:
        for folder in _folders(package):
            if Path(file).is_relative_to(folder):
                return str(package / Path(file).relative_to(folder))
    return shown_path(file)


def _folders(package: str) -> tuple[str, ...]:
    return tuple(getattr(sys.modules.get(package), "__path__", ()))
