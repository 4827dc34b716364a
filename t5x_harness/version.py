"""The harness's version, and where it is installed."""

from __future__ import annotations

from pathlib import Path

__version__ = "0.1.0"


ORIGIN = Path(__file__).resolve().with_name("__init__.py")
"""The file of the package itself."""
