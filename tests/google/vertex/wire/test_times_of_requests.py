"""Times and durations out of protobuf's range are refused before anything is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex")

from google.cloud.aiplatform_v1 import types

from t5x_harness.google.vertex.messages.checks import check_times
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode

PARENT = "projects/t5x-harness/locations/us-central1"


@pytest.mark.parametrize(
    ("timeout", "message"),
    [
        ({"seconds": 9 * 10**15}, "must be in range [-315576000000, 315576000000]"),
        ({"seconds": 1, "nanos": -5}, "Sign mismatch"),
        ({"nanos": 2_000_000_000}, "Nanos 2000000000 must be in range"),
    ],
)
def test_a_job_with_a_duration_that_is_none(call: Callable[..., Any], timeout: Any, message: str) -> None:
    job = {"display_name": "a", "job_spec": {"scheduling": {"timeout": timeout}}}
    with pytest.raises(ApiError) as refused:
        call("JobService.CreateCustomJob", parent=PARENT, custom_job=job)
    assert refused.value.code is StatusCode.INVALID_ARGUMENT
    assert refused.value.violations[0].field == "custom_job.job_spec.scheduling.timeout"
    assert message in refused.value.message
    assert not call("JobService.ListCustomJobs", parent=PARENT).custom_jobs


def test_all_times_of_a_request_are_looked_at() -> None:
    late = {"wall_time": {"seconds": 10**15}, "scalar": {"value": 1.0}}
    request = types.WriteTensorboardRunDataRequest(
        time_series_data=[{"values": [{"wall_time": {"seconds": 5}}, late]}, {"values": [late]}]
    )
    with pytest.raises(ApiError) as refused:
        check_times(types.WriteTensorboardRunDataRequest.pb(request))
    assert [each.field for each in refused.value.violations] == [
        "time_series_data[0].values[1].wall_time",
        "time_series_data[1].values[0].wall_time",
    ]


def test_times_that_are_right_and_messages_that_hold_themselves_pass() -> None:
    job = types.CustomJob(
        display_name="a", labels={"a": "b"}, job_spec={"scheduling": {"timeout": {"seconds": 315_576_000_000}}}
    )
    check_times(types.CustomJob.pb(job))
    check_times(types.Artifact.pb(types.Artifact(metadata={"a": {"b": [{"c": 1}]}}, create_time={"seconds": 1})))
