"""The exit statuses of ``t5x-harness``."""

from __future__ import annotations

FINE, FOUND, USAGE, INTERRUPTED = 0, 1, 2, 130
"""All is well; something was found or failed; wrong usage; interrupted by Ctrl-C."""
