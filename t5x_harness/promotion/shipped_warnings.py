"""Warnings of a shipped test: pytest serializes its reports, and has nothing for what it warns of besides."""

from __future__ import annotations

import builtins
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

__all__ = ["from_json", "to_json"]


def to_json(warning: warnings.WarningMessage, folder: Path) -> dict[str, Any]:
    """A warning as JSON has it.

    Args:
      warning: as it was caught.
      folder: that the test was unpacked into; files in it are named relative to it.
    """
    file = Path(os.path.abspath(warning.filename))
    return {
        "category": warning.category.__name__,
        "text": str(warning.message),
        "file": str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file),
        "line": warning.lineno,
    }


def from_json(value: Mapping[str, Any], folder: Path) -> warnings.WarningMessage:
    """The inverse of :func:`to_json`.

    Nothing is imported for a class that a library there has of its own: its name comes before the text.

    Args:
      value: of :func:`to_json`.
      folder: that the test was packed from.
    """
    name, text = value["category"], value["text"]
    category = getattr(builtins, name, None) or getattr(pytest, name, None)
    if not isinstance(category, type) or not issubclass(category, Warning):
        category, text = UserWarning, f"{name}: {text}"
    return warnings.WarningMessage(text, category, str(folder / value["file"]), int(value["line"]))
