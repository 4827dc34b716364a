"""What in this environment does not work together, and how to fix it.

Everything is read from the metadata of the installed distributions and from the environment: nothing is imported, so
the doctor also works where the patient does not.
"""

from __future__ import annotations

from t5x_harness.doctor.check import Check, Diagnosis, Finding
from t5x_harness.doctor.diagnose import diagnose
from t5x_harness.doctor.environment import Environment, Installed

__all__ = ["Check", "Diagnosis", "Environment", "Finding", "Installed", "diagnose"]
