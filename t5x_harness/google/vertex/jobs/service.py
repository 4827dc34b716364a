"""JobService as a part of the API."""

from __future__ import annotations

from t5x_harness.google.vertex.api.handlers import Handlers, Part
from t5x_harness.google.vertex.api.service import Api
from t5x_harness.google.vertex.jobs.custom_jobs import CustomJobs
from t5x_harness.google.vertex.jobs.driver import Graces
from t5x_harness.google.vertex.jobs.entries_api import list_entries
from t5x_harness.google.vertex.jobs.launching import announced
from t5x_harness.google.vertex.jobs.ownership import Ownership
from t5x_harness.google.vertex.jobs.tuning.tuning_jobs import TuningJobs

__all__ = ["make_part"]


def make_part(api: Api, graces: Graces | None = None) -> Part:
    """The methods of JobService, and what ends with them.

    Args:
      api: that they are a part of.
      graces: for processes that are told to end; by default those of the service.
    """
    ownership = Ownership(api)
    standbys = announced(api.settings)
    standbys.begin()
    custom_jobs = CustomJobs(api, ownership, graces, standbys.start)
    tuning_jobs = TuningJobs(api, ownership, custom_jobs)

    api.faults.on_arm(custom_jobs.look_for_faults)

    def reset() -> None:
        tuning_jobs.close()
        custom_jobs.close()

    def close() -> None:
        standbys.close()
        reset()
        ownership.close()

    return Part(
        Handlers(custom_jobs.handlers(), tuning_jobs.handlers()),
        admin={"entries": lambda request: list_entries(api, {} if request is None else request)},
        reset=reset,
        close=close,
    )
