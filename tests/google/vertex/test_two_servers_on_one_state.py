"""Two servers or clients that change one state concurrently, in any order of their steps."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from api_calls import calls_to
from google.cloud.aiplatform_v1 import types
from hypothesis import given, settings
from hypothesis import strategies as st
from stepped_store import SteppedStore, interleave

from t5x_harness.google.vertex.jobs.endings import JobState
from t5x_harness.google.vertex.jobs.ownership import Owner, Ownership
from t5x_harness.google.vertex.services import Clock, Resources, aspect_key
from t5x_harness.google.vertex.settings import VertexSettings
from t5x_harness.google.vertex.wire.api import Api
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode

BOARD = "projects/1/locations/us-central1/tensorboards/1"
JOB = "projects/1/locations/us-central1/customJobs/1"
in_any_order = given(order=st.lists(st.booleans(), max_size=16))
quickly = settings(max_examples=60, deadline=None, database=None, derandomize=True)


CustomJob, Tensorboard, Experiment = (
    getattr(types, name).pb() for name in ("CustomJob", "Tensorboard", "TensorboardExperiment")
)


@in_any_order
@quickly
def test_nothing_is_left_below_what_is_deleted(order: list[bool]) -> None:
    state = SteppedStore()
    resources = Resources(state, Clock())
    resources.create(BOARD, Tensorboard())
    child = f"{BOARD}/experiments/e"
    made, deleted = interleave(
        state,
        lambda: resources.create(child, Experiment(display_name="e")),
        lambda: resources.delete(BOARD),
        order,
    )
    assert deleted is None
    assert state.keys(BOARD) == []
    if isinstance(made, ApiError):
        assert (made.code, made.message) == (StatusCode.NOT_FOUND, f"The requested resource {BOARD} was not found.")
    else:
        assert made.name == child


@in_any_order
@quickly
def test_a_job_is_not_failed_while_its_server_takes_it(order: list[bool]) -> None:
    state = SteppedStore()
    apis = [Api(VertexSettings(Path("root"), Path("jobs")), state=state) for _ in range(2)]
    apis[0].services.resources.create(JOB, CustomJob(state=1))
    one, other = (Ownership(api.services, lambda _: None) for api in apis)
    other._me = dataclasses.replace(Owner.this(), host="elsewhere")
    try:
        interleave(state, lambda: one.take(JOB), lambda: other.look_after(JOB, CustomJob), order)
        assert apis[0].services.resources.get(JOB, CustomJob).state == JobState.QUEUED
        assert state.get(aspect_key(JOB, "owner")) is not None
    finally:
        one.close()


def test_a_job_whose_server_ended_before_it_took_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    state = SteppedStore()
    api = Api(VertexSettings(Path("root"), Path("jobs")), state=state)
    api.services.resources.create(JOB, CustomJob(state=1))
    looking = Ownership(api.services, lambda _: None)
    looking.look_after(JOB, CustomJob)
    assert api.services.resources.get(JOB, CustomJob).state == JobState.QUEUED
    now = api.services.clock.now()
    monkeypatch.setattr(api.services.clock, "now", lambda: now + 31_000_000_000)
    looking.look_after(JOB, CustomJob)
    job = api.services.resources.get(JOB, CustomJob)
    assert (job.state, job.error.message) == (
        JobState.FAILED,
        "t5x-harness: the server that created this job has ended before it could run it.",
    )


@in_any_order
@quickly
def test_points_of_a_series_that_is_deleted_meanwhile_are_not_kept(order: list[bool]) -> None:
    """Otherwise, a later series with the same name would have these points."""
    state = SteppedStore()
    api = Api(VertexSettings(Path("root"), Path("jobs")), state=state)
    run = f"{BOARD}/experiments/e/runs/r"
    series = f"{run}/timeSeries/1"
    for name, kept in ((BOARD, Tensorboard()), (run, types.TensorboardRun.pb()())):
        state.create(name, kept.SerializeToString())
    state.create(series, types.TensorboardTimeSeries.pb()(name=series, value_type=1).SerializeToString())
    data = {"tensorboard_time_series_id": "1", "value_type": 1, "values": [{"step": 1, "scalar": {"value": 2.0}}]}
    interleave(
        state,
        lambda: calls_to(api)(
            "TensorboardService.WriteTensorboardRunData", tensorboard_run=run, time_series_data=[data]
        ),
        lambda: api.services.resources.delete(series),
        order,
    )
    assert state.keys(series) == []
