"""Results derived from a job's end and its files: findings with fixes, stages, predictions, progress, and orders."""

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from t5x_harness.promotion.jobs import EndedJob, JobWatch, Steps
from t5x_harness.promotion.marker import ResourcesError, TpuResources
from t5x_harness.promotion.order import order_of
from t5x_harness.promotion.results import JobResults, ending, last_of_each, stages_of_job
from t5x_harness.promotion.settings import PromotionSettings
from t5x_harness.promotion.shipped_test import LocalTest
from t5x_harness.report.terminal import achieved
from t5x_harness.spec import Checkpoint, Measure, Outcome, RunResult, RunSpec, Stage, StageResult
from t5x_harness.vertex.logs import UNKNOWN, LogLine, RanOn
from t5x_harness.vertex.machine import Machine
from t5x_harness.vertex.submitted import JobOutcome, SubmittedJob
from t5x_harness.vertex.target import VertexTarget

TRAIN = (Stage.TRAIN, Stage.EVAL, Stage.INFER)
JOB = cast(SubmittedJob, SimpleNamespace(display_name="run-1", url="https://console/1", page="https://console/1"))
TARGET = VertexTarget("mine", "us-central1", "my-bucket", "repo/t5x:1")
GOOD = JobResults(
    "gs://b/model",
    {
        "train/loss": {2: 4.0, 4: 3.0},
        "training_eval/sums/loss": {4: 3.5},
        "inference_eval/sums/eval/accuracy": {2: 0.1, 4: 0.2},
    },
    (Checkpoint(2, "gs://b/model/checkpoint_2", 10), Checkpoint(4, "gs://b/model/checkpoint_4", 10)),
    ({"prediction": "1"}, {"prediction": "2"}),
)


SUCCEEDED = EndedJob(JobOutcome("JOB_STATE_SUCCEEDED"))


def stages(
    found: JobResults, ended: EndedJob = SUCCEEDED, executing: tuple[Stage, ...] = TRAIN, **more: Any
) -> dict[Stage, StageResult]:
    return stages_of_job(
        executing, ended, JOB, found, **{"first_step": 0, "log": Path("no.log"), "earlier": {}, **more}
    )


def test_a_training_job_answers_for_evaluation_and_inference_too() -> None:
    found = stages(GOOD)
    assert [found[stage].outcome for stage in TRAIN] == [Outcome.PASSED] * 3
    assert [found[stage].exercised for stage in TRAIN] == [4, 1, 2]
    assert ("loss", "4 at step 2, 3 at 4") in found[Stage.TRAIN].facts
    assert ("eval/inference_eval/sums/eval/accuracy", "0.2 at step 4") in found[Stage.EVAL].facts
    assert ("predictions", "2 lines with prediction") in found[Stage.INFER].facts


def test_losses_and_metrics_are_those_of_a_run_here() -> None:
    """Losses and metrics have the names that the stages use: a loss by its dataset, a metric by its task."""
    more = {"inference_eval/sums/bleu": {4: 0.25}, "train/learning_rate": {4: 0.1}}
    found = stages(dataclasses.replace(GOOD, metrics={**GOOD.metrics, **more}))
    assert found[Stage.TRAIN].measures == (
        Measure("loss", 4.0, of="train", step=2),
        Measure("loss", 3.0, of="train", step=4),
        Measure("loss", 3.5, of="training_eval/sums", step=4),
    )
    assert found[Stage.EVAL].measures == (Measure("bleu", 0.25, of="sums"), Measure("accuracy", 0.2, of="sums"))
    assert found[Stage.INFER].measures == (Measure("predictions", 2, "lines"),)
    result = RunResult(RunSpec(("run.gin",)), tuple(found.values()))
    assert achieved(result) == [
        "train/loss 4 at step 2, 3 at step 4",
        "training_eval/sums/loss 3.5 at step 4",
        "sums: bleu 0.25, accuracy 0.2",
    ]


def test_an_eval_job_gives_its_metrics() -> None:
    found = JobResults("gs://b/eval", {"inference_eval/sums/accuracy": {12: 0.5}})
    done = stages(found, executing=(Stage.EVAL,))[Stage.EVAL]
    assert done.measures == (Measure("accuracy", 0.5, of="sums"),)


def test_every_loss_that_is_not_finite_is_in_one_finding() -> None:
    bad = {"train/loss": {2: float("inf"), 4: float("nan")}, "training_eval/sums/loss": {4: float("nan")}}
    found = stages(dataclasses.replace(GOOD, metrics=bad))[Stage.TRAIN]
    assert [(f.code, f.message) for f in found.errors] == [
        ("RUN04", "train/loss is inf at step 2, training_eval/sums/loss is nan at step 4")
    ]
    assert [measure.step for measure in found.measures] == [2, 4, 4]


def test_steps_count_from_the_checkpoint_that_training_starts_from() -> None:
    assert stages(GOOD, first_step=3)[Stage.TRAIN].exercised == 1


def test_what_earlier_jobs_left_in_the_folder_is_no_work_of_this_one() -> None:
    """T5X continues from the last checkpoint in MODEL_DIR, and skips an inference that is complete."""
    before = {"checkpoint_4/state": 10, "train/events": 5}
    idle = stages(dataclasses.replace(GOOD, files=before), earlier=before)[Stage.TRAIN]
    assert [f.code for f in idle.errors] == ["RUN02"]
    assert "left nothing new (earlier jobs came to step 4) in gs://b/model" in idle.errors[0].message
    assert stages(GOOD, earlier={"checkpoint_2/state": 10})[Stage.TRAIN].exercised == 2
    written = JobResults("gs://b/out", predictions=({"prediction": "1"},), files={"t-predict.jsonl": 9})
    for files, outcome in ((written.files, "failed"), ({"t-predict.jsonl": 8}, "passed"), ({}, "passed")):
        inferred = stages(written, executing=(Stage.INFER,), earlier=files)
        assert inferred[Stage.INFER].outcome == outcome


@pytest.mark.parametrize(
    ("values", "outcome"),
    [((float("nan"), 0.2), Outcome.PASSED), ((float("nan"), float("inf")), Outcome.NOT_RUN)],
)
def test_metrics_of_a_job_that_are_not_finite_are_warned_of(values: tuple[float, float], outcome: Outcome) -> None:
    metrics = {f"inference_eval/sums/{name}": {12: value} for name, value in zip(("a", "b"), values, strict=True)}
    done = stages(JobResults("gs://b/eval", metrics), executing=(Stage.EVAL,))[Stage.EVAL]
    assert done.outcome is outcome
    assert [f.code for f in done.findings] == ["RUN04"]
    on_its_way = stages(dataclasses.replace(GOOD, metrics={**metrics, "train/loss": {12: 1.0}}, checkpoints=()))
    assert on_its_way[Stage.EVAL].outcome is outcome


def test_what_a_training_job_does_not_do_is_not_called_fine() -> None:
    bare = dataclasses.replace(GOOD, metrics={"train/loss": {4: 3.0}}, predictions=())
    found = stages(bare)
    assert [found[stage].outcome for stage in TRAIN] == [Outcome.PASSED, Outcome.NOT_RUN, Outcome.NOT_RUN]
    assert found[Stage.EVAL].not_checked[0].startswith("the job evaluates nothing by itself: bind infer_eval_dataset_")
    assert found[Stage.INFER].not_checked[0].startswith("predictions: the job wrote none; training does with infer_")


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"metrics": {}, "checkpoints": ()}, "RUN02", "the job ended well and left nothing in gs://b/model, so "),
        (
            {"checkpoints": GOOD.checkpoints[:1]},
            "RUN03",
            "the last checkpoint is of step 2, and training ended at step 4",
        ),
    ],
)
def test_a_job_that_succeeded_is_still_looked_at(change: dict[str, Any], code: str, message: str) -> None:
    found = stages(dataclasses.replace(GOOD, **change))
    assert found[Stage.TRAIN].outcome is Outcome.FAILED
    assert [finding.code for finding in found[Stage.TRAIN].errors] == [code]
    assert found[Stage.TRAIN].errors[0].message.startswith(message)
    assert list(found) == [Stage.TRAIN]  # its failure leaves out the other stages


@pytest.mark.parametrize(
    ("state", "error", "code", "fix"),
    [
        ("FAILED", "The replica workerpool0-0 exited with a non-zero status of 1.", "RUN07", "see the end of its log"),
        ("FAILED", "The replica workerpool0-0 was preempted.", "RUN07", "run it again: its machine was taken away"),
        ("FAILED", "Resources are insufficient in region: us-central1.", "RUN07", "run it in another region"),
        ("FAILED", "Internal error occurred for the current attempt.", "RUN07", "run it again; if it recurs, check"),
        ("CANCELLED", "CANCELED", "RUN07", "run it again: it was cancelled"),
        ("CANCELLED", "The job ran for longer than its scheduling.timeout.", "RUN06", "raise timeout= of the marker"),
        ("EXPIRED", "", "RUN07", "see the end of its log"),
    ],
)
def test_every_other_end_has_a_fix(state: str, error: str, code: str, fix: str) -> None:
    found = stages(GOOD, EndedJob(JobOutcome(f"JOB_STATE_{state}", error)))
    [finding] = found[Stage.TRAIN].errors
    assert finding.code == code
    assert finding.message.startswith(f"the job run-1 ended as {state.lower()}")
    assert error in finding.message
    assert finding.fix is not None
    assert finding.fix.startswith(fix)


def test_a_job_that_nobody_waits_for_any_more_says_what_to_do() -> None:
    ended = EndedJob(None, "the job is running after 10 s. It goes on")
    [finding] = stages(GOOD, ended)[Stage.TRAIN].errors
    assert (finding.code, finding.message) == ("RUN06", "the job is running after 10 s. It goes on")


@pytest.mark.parametrize(
    ("ran_on", "codes", "not_checked"),
    [
        (RanOn("8 x TPU", "tpu"), [], ()),
        (RanOn("8 x cpu", "cpu", platform_set=False), ["RUN11"], ()),
        (RanOn("8 x cpu", "cpu"), ["RUN11"], ()),
        (UNKNOWN, [], ("whether the job ran on its TPU: its log names no devices",)),
    ],
)
def test_a_job_that_ran_beside_its_tpu_proves_nothing_of_it(
    ran_on: RanOn, codes: list[str], not_checked: tuple[str, ...]
) -> None:
    ended = dataclasses.replace(SUCCEEDED, ran_on=ran_on)
    found = stages(GOOD, ended, tpu=Machine.of_slice("v3-8"))
    assert [finding.code for finding in found[Stage.TRAIN].errors] == codes
    assert found[Stage.TRAIN].outcome is (Outcome.FAILED if codes else Outcome.PASSED)
    assert found[Stage.TRAIN].not_checked == not_checked
    assert list(found) == ([Stage.TRAIN] if codes else [*TRAIN])  # a failure leaves out the other stages
    assert stages(GOOD, ended)[Stage.TRAIN].outcome is Outcome.PASSED


def test_of_each_task_the_last_evaluation_counts() -> None:
    names = [
        "checkpoint_4/state/manifest",
        "config.gin",
        "inference_eval/sums-000002.jsonl",
        "inference_eval/sums-000004.jsonl",
        "inference_eval/sums-metrics.jsonl",
        "inference_eval/answer-000002.jsonl",
        "sums-predict.jsonl-00000-of-00001",
        "sums-predict.jsonl-00000-of-00001.COMPLETED",
        "tmp-sums-predict.jsonl-00000-of-00001/chunk-00000.jsonl",
    ]
    assert last_of_each(names) == [
        "inference_eval/answer-000002.jsonl", "inference_eval/sums-000004.jsonl", "sums-predict.jsonl-00000-of-00001",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "step", "of"),
    [
        (["Starting main loop over steps 10000-10004", "Epoch 0 of 2"], 10000, 10004),
        (
            [
                "Starting main loop over steps 1001-4000",
                'Training with artificial "epochs" of 500 steps.',
                "Epoch 2 of 8",
                "Epoch 4 of 8",
                "Epoch 3 of 8",
            ],
            2001,
            4000,
        ),
        (
            [
                "Starting main loop over steps 0-4",
                "I1121 21:26:14.0 12 logging_writer.py:48] [3] collection=train loss=2.5",
                "I1121 21:26:14.0 12 logging_writer.py:48] [4] collection=training_eval loss=2.5",
            ],
            3,
            4,
        ),
        (["Epoch 1: training from step 2 to 4."], 2, 4),
        (["Epoch 1: training from step 2 to 4.", "Saving the checkpoint of step 4: the last."], 4, 4),
        (["Epoch 1: training from step 2 to 4.", "Epoch 0: training from step 0 to 2."], 2, 4),
        (["nothing of the kind"], None, None),
    ],
)
def test_progress_is_read_from_the_log_and_goes_forwards(lines: list[str], step: int | None, of: int | None) -> None:
    steps = Steps()
    for line in lines:
        steps.read(line)
    assert (steps.step, steps.of) == (step, of)


def test_the_log_is_kept_as_it_grows_and_moves_progress(tmp_path: Path) -> None:
    events: list[Any] = []
    said: list[str] = []
    watch = JobWatch(tmp_path / "log", events.append, stage="train", say=said.append)
    watch.on_state("JOB_STATE_PENDING")
    watch.on_state("JOB_STATE_RUNNING")
    for text in ("Epoch 0: training from step 0 to 2.", "done"):
        watch.on_log(LogLine("workerpool0-0", text, "INFO", "2026-01-01T00:00:00Z"))
    assert (tmp_path / "log").read_text() == "workerpool0-0: Epoch 0: training from step 0 to 2.\nworkerpool0-0: done\n"
    assert [event["note"] for event in events] == ["job waiting for its machine", "job running", "job running"]
    assert events[-1] == {"stage": "train", "step": 0, "of": 2, "note": "job running"}
    assert said == ["workerpool0-0: Epoch 0: training from step 0 to 2.", "workerpool0-0: done"]


def test_what_could_not_be_read_of_a_job_is_said() -> None:
    found = stages(GOOD, dataclasses.replace(SUCCEEDED, notes=("the log cannot be read: 403, not you",)))
    assert found[Stage.TRAIN].not_checked == ("the log cannot be read: 403, not you",)


def settings(service: str = "emulated") -> PromotionSettings:
    return PromotionSettings(service, parallel=1, max_chip_hours=16)


@pytest.mark.parametrize(
    ("service", "full_size", "shrink"),
    [
        ("emulated", None, True),
        ("emulated", True, False),
        ("emulated", False, True),
        ("real", None, False),
        ("real", True, False),
        ("real", False, True),
    ],
)
def test_only_what_is_emulated_or_asked_for_is_shrunk(service: str, full_size: bool | None, shrink: bool) -> None:
    order = order_of("it", TpuResources(full_size=full_size, steps=200), settings(service), TARGET, "v3-8")
    assert (order.shrink, order.steps, order.standins) == (shrink, 200, service == "emulated")


@pytest.mark.parametrize(("timeout", "seconds"), [("0.4s", 1), (0.5, 1), ("1.5h", 5400), (None, 4 * 3600)])
def test_no_order_is_without_a_timeout(timeout: float | str | None, seconds: int) -> None:
    """Timeouts are rounded up to whole seconds: the service does not document 0, and it would mean no chip-hours."""
    assert order_of("it", TpuResources(timeout=timeout), settings("real"), TARGET, "v3-8").timeout == seconds


def test_a_marker_without_a_machine_takes_that_of_the_tests_slice() -> None:
    order = order_of("it", TpuResources(region="europe-west4", image_uri="other:2"), settings(), TARGET, "v3-32")
    assert str(order.machine) == "cloud-tpu, 32 TPU_V3 cores"
    assert (order.target.location, order.target.image) == ("europe-west4", "other:2")


def test_what_a_marker_says_of_its_job_is_ordered_and_in_the_spec(tmp_path: Path) -> None:
    resources = TpuResources(
        strategy="FLEX_START",
        max_wait_duration="2h",
        reservation="none",
        env={"A": "1"},
        labels={"team": "nlp"},
        service_account="me@p.iam.gserviceaccount.com",
        restart_job_on_worker_restart=True,
        boot_disk_type="pd-standard",
    )
    order = order_of("it", resources, settings(), TARGET, "v3-8")
    assert (order.env, order.labels) == ({"A": "1"}, {"team": "nlp"})
    (tmp_path / "test_it.py").touch()
    test = LocalTest("it", "test_it.py::test_it", tmp_path, tmp_path / "test_it.py", (), None, (), live=True)
    message = test.shipment(order)[0].to_pb()
    (pool,) = message.job_spec.worker_pool_specs
    assert pool.machine_spec.reservation_affinity.reservation_affinity_type.name == "NO_RESERVATION"
    assert (pool.disk_spec.boot_disk_type, pool.disk_spec.boot_disk_size_gb) == ("pd-standard", 100)
    assert [(each.name, each.value) for each in pool.container_spec.env] == [("A", "1")]
    assert "--live" in pool.container_spec.args
    scheduling = message.job_spec.scheduling
    assert (scheduling.strategy.name, scheduling.max_wait_duration.total_seconds()) == ("FLEX_START", 7200)
    assert scheduling.restart_job_on_worker_restart
    assert message.job_spec.service_account == "me@p.iam.gserviceaccount.com"
    assert message.labels["team"] == "nlp"


def test_a_wait_without_flex_start_is_no_order() -> None:
    with pytest.raises(ResourcesError, match=r"^max_wait_duration is how long a job with the strategy FLEX_START"):
        order_of("it", TpuResources(max_wait_duration="2h"), settings(), TARGET, "v3-8")


@pytest.mark.parametrize(("shipped", "less"), [(True, "have the test do less"), (False, "lower its steps=")])
def test_a_job_that_ran_too_long_is_told_what_it_can_change(shipped: bool, less: str) -> None:
    outcome = JobOutcome("JOB_STATE_CANCELLED", "The job ran for longer than its scheduling.timeout and was cancelled.")
    _, _, fix = ending(EndedJob(outcome), JOB, shipped=shipped)
    assert fix == f"raise timeout= of the marker, or {less}"


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (TpuResources(accelerator_type="TPU_V3"), "accelerator_type='TPU_V3' needs accelerator_count, the number of"),
        (TpuResources(accelerator_count=32), "accelerator_count=32 needs accelerator_type, whose cores these are: TPU"),
        (TpuResources(tpu_topology="2x4"), "tpu_topology='2x4' needs machine_type, such as ct5lp-hightpu-4t"),
    ],
)
def test_half_a_machine_is_none(resources: TpuResources, message: str) -> None:
    with pytest.raises(ResourcesError, match=f"^{re.escape(message)}"):
        order_of("it", resources, settings(), TARGET, "v3-8")
