"""The harness's version, and where it is installed."""

from __future__ import annotations

__version__ = "0.1.0"


ORIGIN = __file__.removesuffix("version.py") + "__init__.py"
"""The file of the package itself; a string, so that importing the package imports nothing else."""
