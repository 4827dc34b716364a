"""Hyperparameter tuning jobs: their parameters, trials, arguments and metrics, and how they end."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.cloud import aiplatform_v1 as vertex
from hypothesis import given
from hypothesis import strategies as st
from job_service import PARENT, pool, processes_of, read_entries

from t5x_harness.google.vertex.jobs.endings import JobState
from t5x_harness.google.vertex.jobs.trials import assign, grid, read_metrics, select, suggest, value_at, values_of
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode

ACTIVE, SUCCEEDED, INFEASIBLE = 2, 4, 5
DEFAULT, GRID, RANDOM = 0, 2, 3
ONE_TRIAL = {"max_trial_count": 1, "parallel_trial_count": 1}
# Writes the same as cloudml-hypertune: one object per line, with all values as text.
REPORT = """
report() { printf '{"global_step": "%s", "loss": "%s", "trial": "%s"}\\n' $1 $2 $CLOUD_ML_TRIAL_ID; }
mkdir -p "${CLOUD_ML_HP_METRIC_FILE%/*}"
for word in "$@"; do case $word in --n=*) n=${word#--n=};; esac; done
echo "$@"
"""


def trial(script: str) -> dict[str, Any]:
    return {"worker_pool_specs": [pool("sh", "-c", REPORT + script, "trial", "--fixed=1")]}


GOOD = 'report 1 9$n > "$CLOUD_ML_HP_METRIC_FILE"; report 2 $n >> "$CLOUD_ML_HP_METRIC_FILE"'


def tune(service: Any, script: str = GOOD, spec: Any = None, **fields: Any) -> Any:
    """Starts a tuning job of four trials, two at once, that run a script."""
    counts = {"max_trial_count": 4, "parallel_trial_count": 2}
    return service.tune({**trial(script), **(spec or {})}, **{**counts, **fields})


def test_trials_get_parameters_and_tell_metrics(service: Any) -> None:
    created = tune(service, max_trial_count=9)  # more than the grid has
    assert created.state == JobState.QUEUED
    job = service.ended(created)
    assert job.state == JobState.SUCCEEDED
    assert [(each.id, each.state) for each in job.trials] == [(str(n), SUCCEEDED) for n in (1, 2, 3, 4)]
    for number, each in enumerate(job.trials, 1):
        assert [(p.parameter_id, p.value.number_value) for p in each.parameters] == [("n", number)]
        assert [(m.metric_id, m.value) for m in each.final_measurement.metrics] == [("loss", number)]
        assert each.final_measurement.step_count == 2
        assert each.HasField("start_time")
        assert each.HasField("end_time")
        assert service.said(service.ask("GetCustomJob", name=each.custom_job)) == [f"--fixed=1 --n={number}"]
    assert job.start_time.ToNanoseconds() <= job.end_time.ToNanoseconds()


def test_what_a_trial_has_reported_before_it_runs_again_is_not_lost(service: Any) -> None:
    script = f'[ -e "$CLOUD_ML_HP_METRIC_FILE" ] && exit 0; {GOOD}; kill -ABRT $$'
    job = service.ended(tune(service, script, **ONE_TRIAL))
    assert job.trials[0].final_measurement.metrics[0].value == 1


def test_no_more_trials_run_at_once_than_there_may(service: Any, tmp_path: Path) -> None:
    together = (
        f"here={tmp_path}/running; mkdir -p $here; touch $here/$n; ls $here | wc -l; "
        f"while [ $(ls $here | wc -l) -lt 2 ]; do sleep 0.02; done; sleep 0.2; rm $here/$n; {GOOD}"
    )
    job = service.ended(tune(service, together, max_trial_count=2))
    assert job.state == JobState.SUCCEEDED, "the two ran together"
    alone = together.replace("-lt 2", "-lt 1")
    job = service.ended(tune(service, alone, max_trial_count=3, parallel_trial_count=1))
    counts = [service.said(service.ask("GetCustomJob", name=each.custom_job))[1] for each in job.trials]
    assert counts == ["1", "1", "1"]


def test_a_trial_that_fails_or_tells_nothing_is_infeasible(service: Any) -> None:
    job = service.ended(tune(service, f"[ $n = 1 ] && exit 3; [ $n = 2 ] && exit 0; {GOOD}"))
    assert job.state == JobState.SUCCEEDED
    assert [each.state for each in job.trials] == [INFEASIBLE, INFEASIBLE, SUCCEEDED, SUCCEEDED]
    assert job.trials[0].infeasible_reason.startswith("The replica workerpool0-0 exited with a non-zero status of 3.")
    assert job.trials[1].infeasible_reason == "The trial ended without having reported a number for loss."
    assert not job.trials[0].HasField("final_measurement")


def test_too_many_failed_trials_fail_the_job_and_end_the_others(service: Any) -> None:
    script = "[ $n = 1 ] && exit 3; sleep 100"
    job = service.ended(tune(service, script, max_failed_trial_count=1))
    assert job.state == JobState.FAILED
    assert job.error.message.startswith("1 trials have failed, the last one with: The replica workerpool0-0 exited")
    assert len(job.trials) == 2
    assert not processes_of(service.api.services.settings.folder)


def test_the_log_says_what_the_service_does_otherwise(service: Any) -> None:
    spec = {"median_automated_stopping_spec": {"use_elapsed_duration": True}, "algorithm": DEFAULT}
    job = service.ended(tune(service, **ONE_TRIAL, study_spec=spec))
    assert service.said(job, "service")[:2] == [
        "study_spec.algorithm: the service's default is Bayesian optimization; here it is RANDOM_SEARCH",
        "study_spec.median_automated_stopping_spec has no effect here: no trial is stopped early",
    ]
    assert service.said(job, "service")[-1] == "Job completed successfully."


def test_a_job_that_waits_is_cancelled_without_a_trial(make_service: Callable[..., Any]) -> None:
    service = make_service(pending_seconds=3600)
    job = service.in_state(tune(service), JobState.PENDING)
    service.ask("CancelHyperparameterTuningJob", name=job.name)
    job = service.ended(job)
    assert (job.state, list(job.trials)) == (JobState.CANCELLED, [])


def test_the_server_s_end_is_the_end_of_all_trials(service: Any) -> None:
    service.until(tune(service, "sleep 100"), lambda job: len(job.trials) == 2)
    service.api.reset()
    assert not processes_of(service.api.services.settings.folder)


def test_a_tuning_job_is_canceled_with_its_trials_and_then_deleted(service: Any) -> None:
    job = service.until(tune(service, "sleep 100"), lambda job: len(job.trials) == 2)
    with pytest.raises(ApiError) as refused:
        service.ask("DeleteHyperparameterTuningJob", name=job.name)
    assert refused.value.code is StatusCode.FAILED_PRECONDITION
    service.ask("CancelHyperparameterTuningJob", name=job.name)
    ended = service.ended(job)
    assert (ended.state, ended.error.code) == (JobState.CANCELLED, 1)
    assert [each.state for each in ended.trials] == [INFEASIBLE, INFEASIBLE]
    assert not processes_of(service.api.services.settings.folder)
    listed = service.ask("ListHyperparameterTuningJobs", parent=PARENT, filter='display_name="tuning"')
    assert [each.name for each in listed.hyperparameter_tuning_jobs] == [job.name]
    assert service.ask("DeleteHyperparameterTuningJob", name=job.name).done
    assert not service.ask("ListHyperparameterTuningJobs", parent=PARENT).hyperparameter_tuning_jobs


def test_each_trial_writes_below_the_job_s_output_and_into_its_log(service: Any) -> None:
    output = {"base_output_directory": {"output_uri_prefix": "gs://b/out"}}
    job = service.ended(tune(service, f"echo $AIP_MODEL_DIR; {GOOD}", output, **ONE_TRIAL))
    entries = [e for e in read_entries(service.api.services.state, job.name) if e["logName"].endswith("workerpool0-0")]
    assert [e["textPayload"] for e in entries] == ["--fixed=1 --n=1", "gs://b/out/1/model/"]
    assert {e["resource"]["labels"]["job_id"] for e in entries} == {job.name.rpartition("/")[2]}
    assert {e["labels"]["ml.googleapis.com/trial_id"] for e in entries} == {"1"}


def test_numbers_without_a_fraction_come_without_a_point(service: Any) -> None:
    sizes = {"parameter_id": "n", "discrete_value_spec": {"values": [0.5, 64.0]}}
    job = service.ended(tune(service, max_trial_count=2, study_spec={"parameters": [sizes]}))
    said = [service.said(service.ask("GetCustomJob", name=each.custom_job)) for each in job.trials]
    assert said == [["--fixed=1 --n=0.5"], ["--fixed=1 --n=64"]]


def study_of(*metrics: str, selection: int = 0) -> Any:
    specs = [{"metric_id": metric, "goal": 2} for metric in metrics]
    return vertex.StudySpec.pb(vertex.StudySpec(metrics=specs, measurement_selection_type=selection))


def test_metrics_are_read_by_steps_and_whatever_else_is_there_is_passed_over(tmp_path: Path) -> None:
    lines = [
        {"global_step": "2", "loss": "0.5", "checkpoint_path": "", "timestamp": 7.0, "trial": "1"},
        {"global_step": "1", "loss": "0.75"},
        {"global_step": "2", "other": "1"},
        {"global_step": "2", "accuracy": "0.25"},
        {"global_step": "3", "loss": "nan"},
        {"global_step": "x", "loss": "1"},
    ]
    odd = [
        '{"a":' + "[" * 60_000,
        '{"loss": 1, "global_step": 1e300}',
        '{"loss": 1, "global_step": Infinity}',
        '{"loss": 1, "global_step": 4, "timestamp": 1e300}',
        '{"loss": 1, "global_step": 5, "timestamp": NaN}',
        '{"loss": NaN, "global_step": 6}',
        '{"loss": 1e999, "global_step": 7}',
        "no json",
        "[1]",
    ]
    file = tmp_path / "output.metrics"
    file.write_text("\n".join([*odd, *map(json.dumps, lines), '{"global_st']))
    found = read_metrics(file, study_of("loss", "accuracy"))
    assert [(each.step, each.values) for each in found] == [(1, {"loss": 0.75}), (2, {"loss": 0.5, "accuracy": 0.25})]
    assert read_metrics(tmp_path / "none", study_of("loss")) == []


@pytest.mark.parametrize(
    ("study", "step"),
    [
        (study_of("loss", "accuracy"), 1),  # only a measurement with all metrics counts
        (study_of("loss"), 2),
        (study_of("loss", selection=2), 1),  # the best
        (study_of("f1"), None),
    ],
)
def test_the_measurement_of_a_trial(tmp_path: Path, study: Any, step: int | None) -> None:
    file = tmp_path / "output.metrics"
    file.write_text('{"global_step": "1", "loss": "0.25", "accuracy": "1"}\n{"global_step": "2", "loss": "0.5"}\n')
    chosen = select(read_metrics(file, study), study)
    assert (chosen and chosen.step) == step


def test_metrics_of_the_real_library(service: Any, tmp_path: Path) -> None:
    pytest.importorskip("hypertune", reason="needs cloudml-hypertune")
    program = tmp_path / "trial.py"
    program.write_text(
        "import hypertune\nreporter = hypertune.HyperTune()\n"
        "for step in range(3): reporter.report_hyperparameter_tuning_metric('loss', 1 / (step + 1), step)\n"
    )
    job = service.ended(service.tune({"worker_pool_specs": [pool("python", str(program))]}))
    assert job.trials[0].final_measurement.metrics[0].value == pytest.approx(1 / 3)
    assert job.trials[0].final_measurement.step_count == 2


LINEAR, LOG, REVERSE_LOG = 1, 2, 3

CONDITIONAL = {
    "parameter_id": "optimizer",
    "categorical_value_spec": {"values": ["sgd", "adam"]},
    "conditional_parameter_specs": [
        {
            "parent_categorical_values": {"values": ["sgd"]},
            "parameter_spec": {"parameter_id": "momentum", "discrete_value_spec": {"values": [0.5, 0.9]}},
        }
    ],
}


def study(algorithm: int, *specs: dict[str, Any]) -> Any:
    return vertex.StudySpec.pb(vertex.StudySpec(algorithm=algorithm, parameters=list(specs)))


def space(*specs: dict[str, Any]) -> Any:
    return study(GRID, *specs).parameters


def double(low: float, high: float, scale: int = LINEAR) -> dict[str, Any]:
    return {"parameter_id": "x", "double_value_spec": {"min_value": low, "max_value": high}, "scale_type": scale}


def integer(low: int, high: int, scale: int = LINEAR) -> dict[str, Any]:
    return {"parameter_id": "n", "integer_value_spec": {"min_value": low, "max_value": high}, "scale_type": scale}


@given(
    st.floats(0, 1, exclude_max=True),
    st.sampled_from([LINEAR, LOG, REVERSE_LOG]),
    st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)) | st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)),
)
def test_values_are_in_their_range_and_of_its_type(place: float, scale: int, bounds: tuple[float, float]) -> None:
    low, high = sorted(bounds)
    (parameter,) = space((integer if isinstance(low, int) else double)(low, high, scale))
    value = value_at(parameter, place)
    assert type(value) is type(low)
    assert low <= value <= high


@pytest.mark.parametrize(
    ("scale", "middle"), [(LINEAR, 50.0005), (LOG, math.sqrt(0.001 * 100)), (REVERSE_LOG, 100.001 - math.sqrt(0.1))]
)
def test_scales(scale: int, middle: float) -> None:
    (parameter,) = space(double(0.001, 100, scale))
    assert value_at(parameter, 0.5) == pytest.approx(middle)
    assert value_at(parameter, 0.0) == pytest.approx(0.001)


def test_each_integer_is_as_likely_as_the_others() -> None:
    (parameter,) = space(integer(1, 3))
    values = [value_at(parameter, place / 300) for place in range(300)]
    assert [values.count(n) for n in (1, 2, 3)] == [100, 100, 100]


def test_choices_are_values_as_they_are_given() -> None:
    category, discrete = space(
        {"parameter_id": "c", "categorical_value_spec": {"values": ["a", "b"]}},
        {"parameter_id": "d", "discrete_value_spec": {"values": [1.5, 64]}},
    )
    assert [value_at(category, place) for place in (0, 0.49, 0.5, 0.99)] == ["a", "a", "b", "b"]
    assert list(values_of(discrete)) == [1.5, 64]


def test_a_condition_on_numbers_allows_for_rounding() -> None:
    below = {"parameter_id": "y", "integer_value_spec": {"min_value": 1, "max_value": 1}}
    condition = {"parent_discrete_values": {"values": [0.1 + 0.2]}, "parameter_spec": below}
    spec = {"parameter_id": "x", "discrete_value_spec": {"values": [0.3]}, "conditional_parameter_specs": [condition]}
    assert assign(space(spec), lambda each: values_of(each)[0]) == {"x": 0.3, "y": 1}


def test_a_grid_has_every_assignment_once() -> None:
    below = [{"optimizer": "sgd", "momentum": 0.5}, {"optimizer": "sgd", "momentum": 0.9}, {"optimizer": "adam"}]
    assert list(grid(space(integer(1, 2), CONDITIONAL))) == [{"n": n, **rest} for n in (1, 2) for rest in below]


@pytest.mark.parametrize("algorithm", [DEFAULT, RANDOM])
def test_values_at_random_are_the_same_for_the_same_study(algorithm: int) -> None:
    spec = study(algorithm, double(0, 1), CONDITIONAL)

    def suggested(seed: str) -> list[Any]:
        return [suggest(spec, seed, number) for number in range(8)]

    assert suggested("seed") == suggested("seed") != suggested("other")
    assert len({each["x"] for each in suggested("seed")}) == 8
    assert {(each["optimizer"], "momentum" in each) for each in suggested("seed")} == {("sgd", True), ("adam", False)}
