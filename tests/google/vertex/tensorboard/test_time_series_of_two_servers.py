"""Time series and Tensorboards that several threads of two servers write at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

Call = Callable[..., Any]


@pytest.fixture
def call(two_calls: list[Call]) -> Call:
    """Returns the first of two servers, which makes what the other fixtures give."""
    return two_calls[0]


def test_one_of_many_makes_a_time_series(two_calls: list[Call], run: Any) -> None:
    from t5x_harness.google.vertex.wire.errors import ApiError

    given = {"display_name": "loss", "value_type": "SCALAR"}
    ask = {"parent": run.name, "tensorboard_time_series": given}

    def make(number: int) -> str:
        try:
            two_calls[number % 2]("TensorboardService.CreateTensorboardTimeSeries", **ask)
        except ApiError as error:
            return error.code.value if "already exist" in error.message else error.message
        return "OK"

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(make, range(16))) == ["INVALID_ARGUMENT"] * 15 + ["OK"]
    found = two_calls[1]("TensorboardService.ListTensorboardTimeSeries", parent=run.name).tensorboard_time_series
    assert [series.display_name for series in found] == ["loss"]


def test_points_that_are_written_at_once_are_all_read(two_calls: list[Call], run: Any, make_series: Call) -> None:
    series = make_series("loss")
    identifier = series.name.rpartition("/")[2]

    def read(call: Call) -> list[int]:
        answer = call("TensorboardService.ReadTensorboardTimeSeriesData", tensorboard_time_series=series.name)
        return [point.step for point in answer.time_series_data.values]

    def write(number: int) -> list[int]:
        call = two_calls[number % 2]
        values = [{"step": step, "scalar": {"value": 1.0}} for step in range(number, 400, 40)]
        data = {"tensorboard_time_series_id": identifier, "value_type": "SCALAR", "values": values}
        call("TensorboardService.WriteTensorboardRunData", tensorboard_run=run.name, time_series_data=[data])
        return read(call)

    with ThreadPoolExecutor(8) as threads:
        steps_read = list(threads.map(write, range(40)))
    for number, steps in enumerate(steps_read):
        assert steps == sorted(set(steps))
        assert set(range(number, 400, 40)) <= set(steps)
    assert [read(call) for call in two_calls] == [list(range(400))] * 2
    found = two_calls[1]("TensorboardService.GetTensorboardTimeSeries", name=series.name)
    assert found.metadata.max_step == 399


def test_of_many_default_tensorboards_one_is_left(two_calls: list[Call], make_board: Call) -> None:
    with ThreadPoolExecutor(8) as threads:
        boards = list(threads.map(lambda number: make_board(f"board {number}", is_default=True), range(16)))
    ask = {"parent": boards[0].name.partition("/tensorboards/")[0], "filter": "is_default=true"}
    assert len(two_calls[1]("TensorboardService.ListTensorboards", **ask).tensorboards) == 1
