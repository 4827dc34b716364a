"""The SDK's uploader with real event files, once or while they are written, by one process or by several."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from client_process import ClientError
from sdk_client import SdkClient

Sdk = Callable[..., Any]

EVENT_FILES = (Path(__file__).parent / "event_files.py").read_text()

both_transports = pytest.mark.parametrize(
    "sdk", ["grpc", pytest.param("rest", marks=pytest.mark.journey)], indirect=True
)


@pytest.fixture
def uploader(sdk: Sdk) -> Sdk:
    """Returns ``sdk`` with the functions of event_files.py, and with ``board``, a new Tensorboard."""
    try:
        sdk("import tensorflow, tensorboard, clu")
    except ClientError as error:
        if error.kind != "ModuleNotFoundError":
            raise
        pytest.skip(str(error).strip().rpartition("\n")[2])
    sdk("globals().get('uploaded') or exec(functions, globals())", functions=EVENT_FILES)
    sdk("board = ai.Tensorboard.create(display_name=name)")
    return sdk


@both_transports
def test_an_upload_leaves_what_the_event_files_hold(uploader: Sdk, tmp_path: Path) -> None:
    code = """
        write_with_tensorflow(f"{logdir}/train")
        write_with_clu(f"{logdir}/eval/Deep_one")
        os.makedirs(f"{logdir}/plugins/profile/2026_01_02_03_04_05")
        with open(f"{logdir}/plugins/profile/2026_01_02_03_04_05/host.xplane.pb", "wb") as file:
            file.write(b"a profile")
        ai.upload_tb_log(tensorboard_id=board.name, tensorboard_experiment_name=name, logdir=logdir, verbosity=0)
        frame = ai.get_experiment_df(name).sort_values("run_name")
        profile = digests([b"a profile"], "profile")
        result = [written(logdir), uploaded(board.resource_name, name), frame["state"].tolist(), profile]
    """
    wanted, found, states, profile = uploader(code, logdir=str(tmp_path))
    assert set(wanted) == {"train", "eval-Deep-one"}
    assert {"loss", 'odd "name" / x', "note", "weights", "pictures", "__run_graph__"} <= set(wanted["train"])
    assert {"accuracy", "timing/seconds", "samples", "image", "grads"} <= set(wanted["eval-Deep-one"])
    assert found.pop("profile") == {"2026_01_02_03_04_05": {"0": profile}}
    assert found == wanted
    assert states == ["COMPLETE", "COMPLETE", "COMPLETE"]


def test_a_second_upload_of_the_same_files_changes_nothing(uploader: Sdk, tmp_path: Path) -> None:
    code = """
        write_with_clu(f"{logdir}/train")
        for _ in range(2):
            _experiment_tracker.reset()
            ai.upload_tb_log(tensorboard_id=board.name, tensorboard_experiment_name=name, logdir=logdir, verbosity=0)
        result = [written(logdir), uploaded(board.resource_name, name)]
    """
    wanted, found = uploader(code, logdir=str(tmp_path))
    assert found == wanted


@pytest.mark.journey
def test_files_are_uploaded_while_they_grow(uploader: Sdk, tmp_path: Path) -> None:
    code = """
        import time

        def steps():
            try:
                found = uploaded(board.resource_name, name)
            except exceptions.NotFound:  # the first run makes the experiment
                found = {}
            return sorted(map(int, found.get("train", {}).get("loss", {})))

        def wait_for(wanted):
            deadline = time.monotonic() + 90
            while steps() != wanted and time.monotonic() < deadline:
                time.sleep(0.2)
            return steps()

        writer = tf.summary.create_file_writer(f"{logdir}/train")
        seen = []
        ai.start_upload_tb_log(tensorboard_id=board.name, tensorboard_experiment_name=name, logdir=logdir)
        for until in (3, 6):
            with writer.as_default():
                for step in range(until - 3, until):
                    tf.summary.scalar("loss", step / 2, step=step)
            writer.flush()
            seen.append(wait_for(list(range(until))))
        ai.end_upload_tb_log()
        result = seen
    """
    assert uploader(code, logdir=str(tmp_path)) == [[0, 1, 2], [0, 1, 2, 3, 4, 5]]


@pytest.mark.journey
def test_a_model_is_logged_and_loaded_again(uploader: Sdk) -> None:
    code = """
        from google.cloud import storage
        storage.Client(project="t5x-harness").create_bucket(name)

        class Doubling(tf.Module):
            @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
            def __call__(self, x):
                return x * 2

        init(experiment=name, experiment_tensorboard=False, staging_bucket=f"gs://{name}")
        with ai.start_run("run") as run:
            ai.log_model(Doubling(), name + "-model", display_name="doubling")
        (model,) = run.get_experiment_models()
        info = ai.get_experiment_model(name + "-model").get_model_info()
        result = [model.display_name, info["framework_name"], float(model.load_model()(tf.constant(21.0)))]
    """
    assert uploader(code) == ["doubling", "tensorflow", 42.0]


@pytest.mark.journey
def test_several_processes_write_one_experiment(uploader: Sdk, client_of_its_own: Callable[[], SdkClient]) -> None:
    """Each process logs its own run, and all of them log the same time series of another run."""
    begin = """
        init(experiment=name, experiment_tensorboard=board_name)
        shared = ai.TensorboardRun(f"{board_name}/experiments/{name}/runs/shared")
    """
    log = """
        with ai.start_run(f"run-{number}"):
            ai.log_params({"number": number})
            for step in range(1, 11):
                ai.log_time_series_metrics({"loss": number + step / 100}, step=step)
        for step in range(10):
            shared.write_tensorboard_scalar_data({"all": 1.0}, step=step * 2 + number)
        result = sorted(shared.read_time_series_data())
    """
    made = uploader("""
        init(experiment=name, experiment_tensorboard=board)
        with ai.start_run("shared"):
            ai.log_time_series_metrics({"all": 1.0}, step=1000)
        result = [name, board.resource_name]
    """)
    clients = [client_of_its_own() for _ in range(2)]
    for client in clients:
        client.run("begin('grpc')")
        client.run(begin, name=made[0], board_name=made[1])
    for number, client in enumerate(clients):
        client.start(log, number=number)
    assert [client.finish() for client in clients] == [["all"]] * 2
    found = uploader("result = uploaded(board_name, shared_name)", shared_name=made[0], board_name=made[1])
    assert sorted(map(int, found["shared"]["all"])) == [*range(20), 1000]
    for number in range(2):
        assert found[f"run-{number}"]["loss"] == {str(step): number + step / 100 for step in range(1, 11)}
