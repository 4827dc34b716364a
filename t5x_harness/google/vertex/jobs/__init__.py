"""JobService: custom jobs and hyperparameter tuning jobs, which really run, as processes of this machine.

``machine`` decides what becomes of a job, ``driver`` carries it out, and ``launching`` says what a replica is started
with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from t5x_harness.google.vertex.api.handlers import Part
    from t5x_harness.google.vertex.api.service import Api

__all__ = ["part"]


def part(api: Api) -> Part:
    """What the service adds to an API."""
    # Imported here, as each process of a job begins with the guard of this package.
    from t5x_harness.google.vertex.jobs.service import make_part

    return make_part(api)
