"""Fixtures with a Tensorboard that has an experiment and a run, and short ways to fill it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_calls import PARENT, Call
from sdk_client import SdkClient

from t5x_harness.google.session import EmulatedCloud


@pytest.fixture
def make_board(call: Call) -> Call:
    """Returns ``make_board(display_name="…")``, which creates and returns a Tensorboard."""
    from google.cloud.aiplatform_v1.types import tensorboard

    def make(display_name: str = "board", **fields: Any) -> Any:
        given = {"display_name": display_name, **fields}
        operation = call("TensorboardService.CreateTensorboard", parent=PARENT, tensorboard=given)
        made = tensorboard.Tensorboard.pb()()
        assert operation.response.Unpack(made)
        return made

    return make


@pytest.fixture
def board(make_board: Call) -> Any:
    """Creates a Tensorboard."""
    return make_board()


@pytest.fixture
def experiment(call: Call, board: Any) -> Any:
    """Creates an experiment in the Tensorboard."""
    ask = {"parent": board.name, "tensorboard_experiment_id": "exp", "tensorboard_experiment": {}}
    return call("TensorboardService.CreateTensorboardExperiment", **ask)


@pytest.fixture
def make_run(call: Call, experiment: Any) -> Call:
    """Returns ``make_run("name")``, which creates a run in the experiment."""

    def make(identifier: str, display_name: str = "") -> Any:
        given = {"display_name": display_name or identifier}
        ask = {"parent": experiment.name, "tensorboard_run_id": identifier, "tensorboard_run": given}
        return call("TensorboardService.CreateTensorboardRun", **ask)

    return make


@pytest.fixture
def run(make_run: Call) -> Any:
    """Creates a run in the experiment."""
    return make_run("train")


@pytest.fixture
def make_series(call: Call, run: Any) -> Call:
    """Returns ``make_series("loss")``, which creates a time series in the run; ``value_type`` is SCALAR by default."""

    def make(display_name: str, value_type: str = "SCALAR", *, identifier: str = "", **fields: Any) -> Any:
        given = {"display_name": display_name, "value_type": value_type, **fields}
        ask = {"parent": run.name, "tensorboard_time_series": given, "tensorboard_time_series_id": identifier}
        return call("TensorboardService.CreateTensorboardTimeSeries", **ask)

    return make


@pytest.fixture
def write(call: Call, run: Any) -> Call:
    """Returns ``write(series, {0: 1.5})``, which writes scalars by step, or points from a list of dictionaries."""

    def send(series: Any, points: Any) -> Any:
        if isinstance(points, dict):
            points = [scalar(step, value) for step, value in points.items()]
        data = {
            "tensorboard_time_series_id": series.name.rpartition("/")[2],
            "value_type": series.value_type,
            "values": points,
        }
        return call("TensorboardService.WriteTensorboardRunData", tensorboard_run=run.name, time_series_data=[data])

    return send


def scalar(step: int, value: float) -> dict[str, Any]:
    """Returns a point, whose time is one second later for each step."""
    return {"step": step, "scalar": {"value": value}, "wall_time": {"seconds": 1_700_000_000 + step}}


@pytest.fixture
def read(call: Call) -> Call:
    """Returns ``read(series)``, which returns the scalars by step."""

    def ask(series: Any, **fields: Any) -> dict[int, float]:
        answer = call("TensorboardService.ReadTensorboardTimeSeriesData", tensorboard_time_series=series.name, **fields)
        return {point.step: point.scalar.value for point in answer.time_series_data.values}

    return ask


@pytest.fixture
def client_of_its_own(
    fake_gcs_server: EmulatedCloud, sdk_process: SdkClient, tmp_path: Path
) -> Iterator[Callable[[], SdkClient]]:
    """Yields ``client_of_its_own()``, which starts another process with the SDK of ``sdk_process``."""
    clients: list[SdkClient] = []

    def start() -> SdkClient:
        environment = {**os.environ, **fake_gcs_server.environment(), "HOME": str(tmp_path)}
        clients.append(SdkClient(sdk_process.interpreter, environment, tmp_path / f"log-{len(clients)}"))
        return clients[-1]

    yield start
    for client in clients:
        client.close()
