"""Experiments with the SDK: users read the values that they have logged, over gRPC and over REST."""

from collections.abc import Callable
from typing import Any

import pytest
from client_process import ClientError
from sdk_client import both_transports

Sdk = Callable[..., Any]

IN_TURN = """
    init(experiment=name, experiment_tensorboard=False)
    first = ai.start_run("run")
    second = ai.ExperimentRun("run", experiment=name)
    first.log_params({"a": 1})
    second.log_params({"b": 2})
    first.log_metrics({"c": 3})
    found = ai.ExperimentRun("run", experiment=name)
    result = [found.get_params(), found.get_metrics()]
"""


@pytest.mark.journey
@both_transports
def test_what_runs_log_is_in_the_experiments_table(sdk: Sdk) -> None:
    code = """
        init(experiment=name, experiment_description="of the test")
        for number in (1, 2):
            ai.start_run(f"run-{number}")
            ai.log_params({"learning_rate": number / 10, "optimizer": "adafactor"})
            ai.log_metrics({"accuracy": 0.5 + number / 10, "steps": number})
            ai.log_metrics({"accuracy": 0.6 + number / 10})
            for step in range(1, 4):
                ai.log_time_series_metrics({"loss": 1 / step / number}, step=step)
            ai.log_time_series_metrics({"loss": 0.125})
            ai.end_run()
        frame = ai.get_experiment_df()
        experiment = ai.Experiment(name)
        result = [
            frame.sort_values("run_name").to_dict("records"),
            list(ai.get_experiment_df(name, include_time_series=False).columns),
            experiment.resource_name,
            [run.name for run in ai.ExperimentRun.list(experiment=name)],
            [e.name for e in ai.Experiment.list()].count(name),
        ]
    """
    name = sdk("result = name")
    records, columns, resource, runs, listed = sdk(code)
    assert records == [
        {
            "experiment_name": name,
            "run_name": f"run-{number}",
            "run_type": "system.ExperimentRun",
            "state": "COMPLETE",
            "param.learning_rate": number / 10,
            "param.optimizer": "adafactor",
            "metric.accuracy": 0.6 + number / 10,
            "metric.steps": number,
            "time_series_metric.loss": 0.125,
        }
        for number in (1, 2)
    ]
    assert "time_series_metric.loss" not in columns
    assert resource == f"projects/100000000000/locations/us-central1/metadataStores/default/contexts/{name}"
    assert runs == ["run-1", "run-2"]
    assert listed == 1


def test_a_run_is_resumed_and_its_state_follows(sdk: Sdk) -> None:
    code = """
        init(experiment=name)
        states = []
        with ai.start_run("run") as run:
            states.append(run.get_state())
            ai.log_params({"a": 1})
        states.append(run.get_state())
        with ai.start_run("run", resume=True) as run:
            states.append(run.get_state())
            ai.log_params({"b": "x"})
            ai.log_time_series_metrics({"loss": 1.0}, step=7)
        try:
            with ai.start_run("run", resume=True) as run:
                ai.log_time_series_metrics({"loss": 0.5})
                raise KeyError("training failed")
        except KeyError:
            states.append(run.get_state())
        found = ai.ExperimentRun("run", experiment=name)
        found.update_state(ai.gapic.Execution.State.CANCELLED)
        states.append(ai.ExperimentRun.get("run", experiment=name).get_state())
        frame = found.get_time_series_data_frame()
        result = [states, found.get_params(), frame[["step", "loss"]].values.tolist(), found.resource_id]
    """
    states, params, series, identifier = sdk(code)
    assert states == ["RUNNING", "COMPLETE", "RUNNING", "FAILED", "CANCELLED"]
    assert params == {"a": 1.0, "b": "x"}
    assert series == [[7.0, 1.0], [8.0, 0.5]]
    assert identifier == sdk("result = name") + "-run"


@pytest.mark.parametrize(
    ("sdk", "kind"), [("grpc", "AlreadyExists"), ("rest", "Conflict")], indirect=["sdk"], ids=["grpc", "rest"]
)
def test_a_run_that_is_there_is_not_begun_again(sdk: Sdk, kind: str) -> None:
    code = """
        init(experiment=name, experiment_tensorboard=False)
        ai.start_run("run")
        ai.end_run()
        ai.start_run("run")
    """
    with pytest.raises(ClientError, match=r"Context with name projects/100000000000/\S+-run already exists") as caught:
        sdk(code)
    assert caught.value.kind == kind


def test_an_experiment_has_the_tensorboard_that_it_is_given(sdk: Sdk) -> None:
    code = """
        board = ai.Tensorboard.create(display_name=name)
        init(experiment=name, experiment_tensorboard=board)
        with ai.start_run("run") as run:
            ai.log_time_series_metrics({"loss": 1.0}, step=1)
        other = name + "-without"
        init(experiment=other, experiment_tensorboard=False)
        with ai.start_run("run"):
            ai.log_params({"a": 1})
        backing = ai.Experiment(name).get_backing_tensorboard_resource()
        (experiment,) = ai.TensorboardExperiment.list(tensorboard_name=board.resource_name)
        result = [
            backing.resource_name == board.resource_name,
            ai.Experiment(other).get_backing_tensorboard_resource(),
            experiment.display_name,
            dict(experiment.gca_resource.labels),
        ]
    """
    same, none, name, labels = sdk(code)
    assert (same, none, name) == (True, None, sdk("result = name"))
    assert labels == {"vertex_tensorboard_experiment_source": "vertex_experiment"}


@both_transports
def test_executions_and_artifacts_of_a_run_are_linked(sdk: Sdk) -> None:
    code = """
        init(experiment=name)
        with ai.start_run("run") as run:
            data = ai.Artifact.create(schema_title="system.Dataset", uri=f"gs://b/{name}", metadata={"rows": 3})
            with ai.start_execution(schema_title="system.ContainerExecution", display_name="train") as train:
                train.assign_input_artifacts([data])
                model = ai.Artifact.create(schema_title="system.Model", display_name="model")
                train.assign_output_artifacts([model])
            ai.log_classification_metrics(
                display_name="scores", labels=["cat", "dog"], matrix=[[9, 1], [1, 9]],
                fpr=[0.1, 0.5], tpr=[0.2, 0.7], threshold=[0.9, 0.5],
            )
        (metrics,) = run.get_classification_metrics()
        metrics.pop("id")
        graph = ai.Context(f"{name}-run").query_lineage_subgraph()
        again = ai.Execution(train.name)
        result = [
            [a.uri for a in again.get_input_artifacts()], [a.display_name for a in again.get_output_artifacts()],
            again.state.name, sorted(a.schema_title for a in run.get_artifacts()),
            [e.display_name for e in run.get_executions()], metrics, len(graph.events),
            ai.Artifact.get_with_uri(f"gs://b/{name}").metadata, run.get_params(),
            [c.display_name for c in ai.Context.list(filter=f'parent_contexts:"{ai.Experiment(name).resource_name}"')],
        ]
    """
    inputs, outputs, state, artifacts, executions, metrics, events, metadata, _, runs = sdk(code)
    assert inputs == [f"gs://b/{sdk('result = name')}"]
    assert (outputs, state, executions, events) == (["model"], "COMPLETE", ["train"], 2)
    assert artifacts == [
        "google.ClassificationMetrics",
        "google.VertexTensorboardRun",
        "system.Dataset",
        "system.Model",
    ]
    assert metrics == {
        "display_name": "scores",
        "labels": ["cat", "dog"],
        "matrix": [[9.0, 1.0], [1.0, 9.0]],
        "fpr": [0.1, 0.5],
        "tpr": [0.2, 0.7],
        "threshold": [0.9, 0.5],
    }
    assert metadata == {"rows": 3.0}
    assert runs == ["run"]


def test_an_experiment_is_deleted_with_its_runs(sdk: Sdk) -> None:
    code = """
        init(experiment=name)
        for number in (1, 2):
            with ai.start_run(f"run-{number}"):
                ai.log_time_series_metrics({"loss": 1.0}, step=1)
        experiment = ai.Experiment(name)
        board = experiment.get_backing_tensorboard_resource()
        experiment.delete(delete_backing_tensorboard_runs=True)
        runs = ai.TensorboardRun.list(f"{board.resource_name}/experiments/{name}")
        result = [ai.Experiment.get(name), len(runs)]
        ai.Experiment.create(name)
        result.append(ai.ExperimentRun.list(experiment=name))
    """
    assert sdk(code) == [None, 0, []]


def test_two_handles_of_a_run_write_it_in_turn(sdk: Sdk) -> None:
    assert sdk(IN_TURN) == [{"a": 1.0, "b": 2.0}, {"c": 3.0}]


@pytest.mark.parametrize("sdk", ["rest"], indirect=True)
def test_over_rest_the_sdk_does_not_try_again_with_a_new_etag(sdk: Sdk) -> None:
    with pytest.raises(ClientError, match=r"Specified Context `etag`: `\d+` does not match server `etag`: `") as caught:
        sdk(IN_TURN)
    assert caught.value.kind == "Conflict"


def test_contexts_artifacts_and_executions_are_updated_and_deleted(sdk: Sdk) -> None:
    code = """
        context = ai.Context.create(schema_title="system.Experiment", resource_id=name, metadata={"a": {"b": 1}})
        context.update(metadata={"a": {"c": 2}, "d": None}, description="new")
        artifact = ai.Artifact.create(schema_title="system.Artifact", resource_id=name, uri="gs://b/x")
        artifact.update(metadata={"e": [1, "f"]})
        execution = ai.Execution.create(schema_title="system.Run", resource_id=name, credentials=None)
        execution.update(state=ai.gapic.Execution.State.CACHED, metadata={"g": True})
        result = [ai.Context(name).metadata, ai.Context(name).description, ai.Artifact(name).metadata]
        result += [ai.Execution(name).metadata, ai.Execution(name).state.name]
        for resource in (context, artifact, execution):
            resource.delete()
        result.append([kind.get(name) for kind in (ai.Context, ai.Artifact, ai.Execution)])
    """
    assert sdk(code) == [
        {"a": {"b": 1.0, "c": 2.0}, "d": None},
        "new",
        {"e": [1.0, "f"]},
        {"g": True},
        "CACHED",
        [None, None, None],
    ]
