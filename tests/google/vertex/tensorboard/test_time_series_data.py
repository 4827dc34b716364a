"""The data of time series: writing, reading, choosing and exporting, also by several threads and servers at once."""

import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from api_calls import Call, Refused


def data_of(series: Any, *values: Any, **fields: Any) -> dict[str, Any]:
    """Returns the points of a time series in a request."""
    identifier = series.name.rpartition("/")[2]
    return {"tensorboard_time_series_id": identifier, "value_type": series.value_type, "values": values, **fields}


def test_points_are_read_in_the_order_of_their_steps_each_as_it_was_written_last(
    make_series: Call, write: Call, read: Call
) -> None:
    loss = make_series("loss")
    write(loss, {5: 0.5, 1: 0.1})
    write(loss, {3: 0.3})
    assert list(read(loss).items()) == [(1, 0.1), (3, 0.3), (5, 0.5)]
    write(loss, [{"step": 3, "scalar": {"value": 7.0}}, {"step": 3, "scalar": {"value": 8.0}}])
    assert list(read(loss).items()) == [(1, 0.1), (3, 8.0), (5, 0.5)]


def test_a_time_series_tells_its_extremes_and_keeps_its_etag(call: Call, make_series: Call, write: Call) -> None:
    loss = make_series("loss")
    write(loss, {7: 0.5, 3: 0.1})
    found = call("TensorboardService.GetTensorboardTimeSeries", name=loss.name)
    assert (found.metadata.max_step, found.metadata.max_wall_time.seconds) == (7, 1_700_000_007)
    assert found.etag == loss.etag


@pytest.mark.usefixtures("call")
def test_nothing_is_written_if_something_cannot_be(make_series: Call, run: Any, read: Call, refused: Refused) -> None:
    loss, text = make_series("loss"), make_series("text", "TENSOR")
    point = {"step": 1, "scalar": {"value": 1.0}}
    good = data_of(loss, point)
    for bad, told in [
        (data_of(text, point, value_type=1), "time_series_data[1].value_type; Message: it is SCALAR; text is"),
        (data_of(text, point), "values[0].value; Message: it has scalar; text is a time series"),
        (data_of(text, {"step": 1}), "values[0].value; Message: it has nothing; text is a time series of TENSOR"),
        (data_of(loss, point, value_type=99), "it is of no type; loss is a time series of SCALAR"),
    ]:
        ask = {"tensorboard_run": run.name, "time_series_data": [good, bad]}
        code, message = refused("TensorboardService.WriteTensorboardRunData", **ask)
        assert code == "INVALID_ARGUMENT"
        assert told in message
    for gone in ("gone", "", f"{good['tensorboard_time_series_id']}#points", "../../runs"):
        ask = {"tensorboard_run": run.name, "time_series_data": [good, {**good, "tensorboard_time_series_id": gone}]}
        assert refused("TensorboardService.WriteTensorboardRunData", **ask)[0] == "NOT_FOUND"
    assert read(loss) == {}


@pytest.mark.usefixtures("read")
def test_a_request_writes_five_thousand_points_at_most(
    make_series: Call, write: Call, run: Any, refused: Refused
) -> None:
    loss = make_series("loss")
    write(loss, dict.fromkeys(range(5000), 1.0))
    data = data_of(loss, *({"step": step, "scalar": {}} for step in range(5001)))
    ask = {"tensorboard_run": run.name, "time_series_data": [data]}
    assert refused("TensorboardService.WriteTensorboardRunData", **ask) == (
        "INVALID_ARGUMENT",
        "List of found errors:\t"
        "1.Field: time_series_data; Message: 5001 data points; at most 5000 can be written at once\t",
    )


def test_an_experiments_data_is_of_its_own_runs(
    call: Call, experiment: Any, board: Any, make_run: Call, refused: Refused
) -> None:
    requests, names = [], []
    for name in ("first", "second"):
        run = make_run(name)
        given = {"display_name": "loss", "value_type": "SCALAR"}
        series = call("TensorboardService.CreateTensorboardTimeSeries", parent=run.name, tensorboard_time_series=given)
        data = data_of(series, {"step": 1, "scalar": {"value": 1.0}})
        requests.append({"tensorboard_run": run.name, "time_series_data": [data]})
        names.append(series.name)
    ask = {"tensorboard_experiment": experiment.name, "write_run_data_requests": requests}
    call("TensorboardService.WriteTensorboardExperimentData", **ask)
    found = call("TensorboardService.BatchReadTensorboardTimeSeriesData", tensorboard=board.name, time_series=names)
    assert [data.tensorboard_time_series_id for data in found.time_series_data] == [n.split("/")[-1] for n in names]
    assert [data.values[0].scalar.value for data in found.time_series_data] == [1.0, 1.0]
    ask["tensorboard_experiment"] = f"{board.name}/experiments/other"
    told = refused("TensorboardService.WriteTensorboardExperimentData", **ask)
    assert "1.Field: write_run_data_requests[0].tensorboard_run; Message:" in told[1]
    elsewhere = {"tensorboard": f"{board.name}1", "time_series": names}
    told = refused("TensorboardService.BatchReadTensorboardTimeSeriesData", **elsewhere)
    assert f"is not in {board.name}1" in told[1]


def test_some_of_many_points_are_told_and_the_last_is_among_them(make_series: Call, write: Call, read: Call) -> None:
    loss = make_series("loss")
    write(loss, {step: float(step) for step in range(1500)})
    found = read(loss)
    assert len(found) == 1000
    assert list(found) == sorted(found)
    assert found[1499] == 1499.0
    assert len(read(loss, max_data_points=10)) == 10
    assert read(loss, max_data_points=1) == {1499: 1499.0}
    assert len(read(loss, max_data_points=1500)) == len(read(loss, max_data_points=-1)) == 1500
    assert read(loss, max_data_points=10) == read(loss, max_data_points=10)


@pytest.mark.parametrize("most", [-2, 10_001])
def test_a_number_of_points_that_cannot_be_told_is_refused(most: int, make_series: Call, refused: Refused) -> None:
    ask = {"tensorboard_time_series": make_series("loss").name, "max_data_points": most}
    told = refused("TensorboardService.ReadTensorboardTimeSeriesData", **ask)
    assert f"1.Field: max_data_points; Message: {most} is neither from 1 to 10000, nor -1 for all" in told[1]


def test_a_batch_tells_a_hundred_points_of_tensors(call: Call, board: Any, make_series: Call, write: Call) -> None:
    names = []
    for name, kind, value in (("loss", "SCALAR", {"scalar": {}}), ("text", "TENSOR", {"tensor": {"value": b"x"}})):
        series = make_series(name, kind)
        write(series, [{"step": step, **value} for step in range(1200)])
        names.append(series.name)
    found = call("TensorboardService.BatchReadTensorboardTimeSeriesData", tensorboard=board.name, time_series=names)
    assert [len(data.values) for data in found.time_series_data] == [1000, 100]
    assert [data.values[-1].step for data in found.time_series_data] == [1199, 1199]


def test_points_are_filtered(make_series: Call, write: Call, read: Call) -> None:
    loss = make_series("loss")
    write(loss, {step: step / 10 for step in range(10)})
    assert list(read(loss, filter="step >= 7")) == [7, 8, 9]
    assert list(read(loss, filter="step > 2 AND step < 5")) == [3, 4]
    assert list(read(loss, filter='wall_time > "2023-11-14T22:13:28Z"')) == [9]
    assert list(read(loss, filter="scalar.value > 0.75")) == [8, 9]


def pages(call: Call, series: Any, **fields: Any) -> list[list[int]]:
    """Returns the steps on all pages of an export."""
    found, token = [], ""
    while True:
        ask = {"tensorboard_time_series": series.name, "page_token": token, **fields}
        page = call("TensorboardService.ExportTensorboardTimeSeriesData", **ask)
        found.append([point.step for point in page.time_series_data_points])
        token = page.next_page_token
        if not token:
            return found


def test_a_time_series_is_exported_in_pages(call: Call, make_series: Call, write: Call, refused: Refused) -> None:
    loss = make_series("loss")
    write(loss, {step: float(step % 3) for step in range(7)})
    assert pages(call, loss) == [[0, 1, 2, 3, 4, 5, 6]]
    assert pages(call, loss, page_size=3) == [[0, 1, 2], [3, 4, 5], [6]]
    assert pages(call, loss, page_size=7) == [[0, 1, 2, 3, 4, 5, 6]]
    assert pages(call, loss, page_size=2, filter="step > 2") == [[3, 4], [5, 6]]
    assert pages(call, loss, page_size=3, order_by="step desc") == [[6, 5, 4], [3, 2, 1], [0]]
    assert pages(call, loss, page_size=4, order_by="scalar.value, step desc") == [[6, 3, 0, 4], [1, 5, 2]]
    ask = {"tensorboard_time_series": loss.name, "page_token": "nonsense"}
    assert refused("TensorboardService.ExportTensorboardTimeSeriesData", **ask)[0] == "INVALID_ARGUMENT"


def test_an_export_goes_on_behind_its_page_whatever_is_written(call: Call, make_series: Call, write: Call) -> None:
    loss = make_series("loss")
    write(loss, dict.fromkeys((10, 20, 30), 1.0))
    ask = {"tensorboard_time_series": loss.name, "page_size": 2}
    page = call("TensorboardService.ExportTensorboardTimeSeriesData", **ask)
    write(loss, {5: 1.0, 25: 1.0})
    page = call("TensorboardService.ExportTensorboardTimeSeriesData", **ask, page_token=page.next_page_token)
    assert [point.step for point in page.time_series_data_points] == [25, 30]


def test_numbers_come_back_bit_by_bit(make_series: Call, write: Call, read: Call) -> None:
    loss = make_series("loss")
    values = [0.1, 1e300, 5e-324, float("inf"), float("-inf"), float("nan"), -0.0]
    write(loss, dict(enumerate(values)))
    assert [struct.pack("d", v) for v in read(loss).values()] == [struct.pack("d", v) for v in values]


def test_a_time_series_that_is_made_again_is_empty(call: Call, make_series: Call, write: Call, read: Call) -> None:
    series = make_series("loss", identifier="chosen")
    write(series, {1: 1.0, 2: 2.0})
    assert read(series) == {1: 1.0, 2: 2.0}
    call("TensorboardService.DeleteTensorboardTimeSeries", name=series.name)
    series = make_series("loss", identifier="chosen")
    assert read(series) == {}
    write(series, {3: 3.0})
    assert read(series) == {3: 3.0}


def test_use_and_size_are_told(call: Call, board: Any, make_series: Call, write: Call, read: Call) -> None:
    ask = {"tensorboard": board.name}
    assert call("TensorboardService.ReadTensorboardSize", **ask).storage_size_byte == 0
    assert not call("TensorboardService.ReadTensorboardUsage", **ask).monthly_usage_data
    loss = make_series("loss")
    write(loss, {1: 1.0})
    read(loss)
    read(loss)
    assert call("TensorboardService.ReadTensorboardSize", **ask).storage_size_byte > 8
    ((month, usage),) = call("TensorboardService.ReadTensorboardUsage", **ask).monthly_usage_data.items()
    assert len(month) == 6
    assert [(user.username, user.view_count) for user in usage.user_usage_data] == [
        ("t5x-harness@t5x-harness.iam.gserviceaccount.com", 2)
    ]


class TestTwoServers:
    """Several threads of two servers write at once."""

    @pytest.fixture
    def call(self, two_calls: list[Call]) -> Call:
        """Returns the first of two servers, which makes what the other fixtures give."""
        return two_calls[0]

    def test_one_of_many_makes_a_time_series(self, two_calls: list[Call], run: Any) -> None:
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

    def test_points_that_are_written_at_once_are_all_read(
        self, two_calls: list[Call], run: Any, make_series: Call
    ) -> None:
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

    def test_of_many_default_tensorboards_one_is_left(self, two_calls: list[Call], make_board: Call) -> None:
        with ThreadPoolExecutor(8) as threads:
            boards = list(threads.map(lambda number: make_board(f"board {number}", is_default=True), range(16)))
        ask = {"parent": boards[0].name.partition("/tensorboards/")[0], "filter": "is_default=true"}
        assert len(two_calls[1]("TensorboardService.ListTensorboards", **ask).tensorboards) == 1
