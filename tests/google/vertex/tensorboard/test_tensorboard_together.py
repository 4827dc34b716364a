"""Concurrent use of the same time series: by threads of a server, and by servers with one Redis."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

LOCATION = "projects/t5x-harness/locations/us-central1"

Call = Callable[..., Any]


@pytest.fixture
def run(two_calls: list[Call]) -> str:
    """The name of a run."""
    call = two_calls[0]
    call("TensorboardService.CreateTensorboard", parent=LOCATION, tensorboard={"display_name": "board"})
    (board,) = call("TensorboardService.ListTensorboards", parent=LOCATION).tensorboards
    call(
        "TensorboardService.CreateTensorboardExperiment",
        parent=board.name,
        tensorboard_experiment_id="exp",
        tensorboard_experiment={},
    )
    made = call(
        "TensorboardService.CreateTensorboardRun",
        parent=f"{board.name}/experiments/exp",
        tensorboard_run_id="run",
        tensorboard_run={"display_name": "run"},
    )
    name: str = made.name
    return name


def make_series(call: Call, run: str) -> Any:
    """Makes the time series ``loss``."""
    given = {"display_name": "loss", "value_type": "SCALAR"}
    return call("TensorboardService.CreateTensorboardTimeSeries", parent=run, tensorboard_time_series=given)


def test_one_of_many_makes_a_time_series(two_calls: list[Call], run: str) -> None:
    from t5x_harness.google.vertex.wire.errors import ApiError

    def make(number: int) -> str:
        try:
            make_series(two_calls[number % 2], run)
        except ApiError as error:
            return error.code.value if "already exist" in error.message else error.message
        return "OK"

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(make, range(16))) == ["INVALID_ARGUMENT"] * 15 + ["OK"]
    found = two_calls[1]("TensorboardService.ListTensorboardTimeSeries", parent=run).tensorboard_time_series
    assert [series.display_name for series in found] == ["loss"]


def test_points_that_are_written_at_once_are_all_read(two_calls: list[Call], run: str) -> None:
    series = make_series(two_calls[0], run)

    def write(number: int) -> list[int]:
        call = two_calls[number % 2]
        values = [{"step": step, "scalar": {"value": 1.0}} for step in range(number, 400, 40)]
        data = {
            "tensorboard_time_series_id": series.name.rpartition("/")[2],
            "value_type": "SCALAR",
            "values": values,
        }
        call("TensorboardService.WriteTensorboardRunData", tensorboard_run=run, time_series_data=[data])
        answer = call("TensorboardService.ReadTensorboardTimeSeriesData", tensorboard_time_series=series.name)
        return [point.step for point in answer.time_series_data.values]

    with ThreadPoolExecutor(8) as threads:
        read = list(threads.map(write, range(40)))
    for number, steps in enumerate(read):
        assert steps == sorted(set(steps))
        assert set(range(number, 400, 40)) <= set(steps)
    for call in two_calls:
        answer = call("TensorboardService.ReadTensorboardTimeSeriesData", tensorboard_time_series=series.name)
        assert [point.step for point in answer.time_series_data.values] == list(range(400))
    found = two_calls[1]("TensorboardService.GetTensorboardTimeSeries", name=series.name)
    assert found.metadata.max_step == 399


def test_of_many_default_tensorboards_one_is_left(two_calls: list[Call]) -> None:
    def make(number: int) -> None:
        given = {"display_name": f"board {number}", "is_default": True}
        two_calls[0]("TensorboardService.CreateTensorboard", parent=LOCATION, tensorboard=given)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(make, range(16)))
    ask = {"parent": LOCATION, "filter": "is_default=true"}
    assert len(two_calls[1]("TensorboardService.ListTensorboards", **ask).tensorboards) == 1
