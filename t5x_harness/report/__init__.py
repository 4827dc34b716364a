"""The results of runs, as one value, and its writers: one module each."""

from __future__ import annotations

from t5x_harness.report.report import Report, RunRow

__all__ = ["Report", "RunRow"]
