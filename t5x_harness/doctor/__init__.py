"""``t5x-harness doctor``: what in this environment does not work together, and how to mend it.

Everything is read from the metadata of the installed distributions and from the environment: nothing is imported, so
the doctor also works where the patient does not.
"""

from __future__ import annotations

from t5x_harness.doctor.check import Check, Diagnosis, Finding
from t5x_harness.doctor.command import add_arguments, diagnose, run
from t5x_harness.doctor.environment import Environment, Installed

__all__ = ["Check", "Diagnosis", "Environment", "Finding", "Installed", "add_arguments", "diagnose", "run"]
