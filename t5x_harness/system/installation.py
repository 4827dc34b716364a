"""Where this harness is installed."""

from __future__ import annotations

from pathlib import Path

ORIGIN = Path(__file__).resolve().parents[1] / "__init__.py"
"""The file of the package itself."""
