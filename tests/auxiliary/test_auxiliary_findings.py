"""Mistakes in a request are reported before the first job, with the codes of the failure catalog."""

import sys
from pathlib import Path

import pytest
from train_desk import Desk

from t5x_harness.auxiliary.jobs import JobTemplate
from t5x_harness.commands.main import main
from t5x_harness.lint.rule import REPLACED_MACROS
from t5x_harness.spec import Finding, Outcome, RunResult, RunSpec, Severity, Stage, StageResult
from t5x_harness.vertex.arguments import OUTPUT_MACROS

T5X = "--auxiliary_job_build_target=//t5x:eval"


EVALUATING = ("--auxiliary_job_mixtures=numbers", "--auxiliary_job_gin_file=eval.gin", "--replace_gin_file=True")
FINETUNING = ("--auxiliary_job_mixtures=numbers", "--auxiliary_job_gin_file=finetune.gin", "--replace_gin_file")


@pytest.mark.parametrize(
    ("added", "arguments", "message"),
    [
        (
            "",
            EVALUATING[1:],
            "error AUX01: no mixture is named, so no job would ever start: … "
            "fix: give --auxiliary_job_mixtures=TASK, or",
        ),
        (
            "eval.gin: utils.DatasetConfig.mixture_or_task_name = 'letters'",
            EVALUATING,
            "error AUX01: no dataset of the jobs is of numbers: nothing reads MIXTURE_OR_TASK_NAME",
        ),
        (
            "",
            (*EVALUATING[:2], T5X),
            "error AUX02: t5x.eval would read the train job's train.gin too, and in eval there is no function train "
            "fix: give --replace_gin_file, and",
        ),
        (
            "",
            (EVALUATING[0], "--replace_gin_file"),
            "error AUX02: replace_gin_file leaves out the train job's gin files, and there are no others",
        ),
        (
            "eval.gin: utils.RestoreCheckpointConfig.path = '/fixed/checkpoint_1'",
            EVALUATING,
            "eval.gin:7: error AUX04: the jobs would all begin with utils.RestoreCheckpointConfig.path = "
            "'/fixed/checkpoint_1', and not with the checkpoint that they are for: … "
            "fix: bind RestoreCheckpointConfig.path = %INITIAL_CHECKPOINT_PATH",
        ),
        (
            "",
            (*EVALUATING, "--auxiliary_job_binding=TRAIN_STEPS = 8"),
            "error AUX05: TRAIN_STEPS = 8: the controller gives each job its own TRAIN_STEPS fix: leave",
        ),
        (
            "",
            (*EVALUATING, "--final_auxiliary_job_steps=5"),
            "error AUX06: final_auxiliary_job_steps is 5, and jobs that eval run no train steps",
        ),
        ("", FINETUNING, "error AUX06: final_auxiliary_job_steps is 0, and the jobs train: in the train job's"),
        (
            "finetune.gin: train_script.train.total_steps = 8",
            (*FINETUNING, "--final_auxiliary_job_steps=5"),
            "error AUX06: train_script.train.total_steps = 8 is where the jobs end",
        ),
        (
            "finetune.gin: TRAIN_STEPS_RELATIVE = 8",
            (*FINETUNING, "--final_auxiliary_job_steps=5"),
            "error AUX06: TRAIN_STEPS_RELATIVE = 8 counts in place of TRAIN_STEPS",
        ),
        (
            "eval.gin: eval_script.evaluate.output_dir = '/elsewhere'",
            EVALUATING,
            "error AUX06: the jobs would write into eval_script.evaluate.output_dir = '/elsewhere', and not into "
            "MODEL, where TensorBoard has the train job's metrics",
        ),
        (
            "eval.gin: utils.RestoreCheckpointConfig.mode = 'all'",
            EVALUATING,
            "error AUX09: utils.RestoreCheckpointConfig.mode = 'all' looks for checkpoints in a folder",
        ),
        (
            "eval.gin: DROPOUT_RATE = %gin.REQUIRED",
            EVALUATING,
            "eval.gin:7: error GIN27: DROPOUT_RATE is gin.REQUIRED and nothing gives it a value",
        ),
    ],
)
def test_a_request_with_a_mistake_starts_nothing(
    desk: Desk, capsys: pytest.CaptureFixture[str], added: str, arguments: tuple[str, ...], message: str
) -> None:
    if added:
        _add(desk, *added.split(": ", 1))
    desk.checkpoint(30)
    assert main(["auxiliary", "train.gin", *arguments]) == 1
    said = capsys.readouterr().err
    assert said.endswith("t5x-harness auxiliary: nothing was started\n")
    assert not (desk.model / "auxiliary").exists()
    shown = " ".join(said.split())
    assert all(part in shown for part in message.replace("MODEL", str(desk.model)).split("…"))


@pytest.mark.parametrize("macro", ["INITIAL_CHECKPOINT_PATH", "CHECKPOINT_PATH"])
def test_either_macro_for_the_checkpoint_is_replaced(desk: Desk, macro: str) -> None:
    _add(desk, "eval.gin", f"{macro} = '/fixed/checkpoint_1'\nutils.RestoreCheckpointConfig.path = %{macro}")
    desk.checkpoint(30)
    assert desk.run() == 0
    assert desk.calls[0][macro] == f"{desk.model}/checkpoint_30"


@pytest.mark.parametrize(
    ("loggers", "message"),
    [
        ("[]", "eval.gin:8: warning AUX03: …seqio.Evaluator.logger_cls is empty: the metrics are written nowhere"),
        ("[@seqio.JSONLogger]", "eval.gin:8: warning AUX03: …has no logger for TensorBoard: the metrics do not appear"),
        ("", "note AUX10: the train job itself still evaluates by teacher forcing (train_eval_dataset_cfg)"),
    ],
)
def test_an_evaluation_that_tensorboard_does_not_show_or_that_stays_in_the_train_job(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, loggers: str, message: str
) -> None:
    monkeypatch.setattr("t5x_harness.auxiliary.processes.LocalJobs.start", _failing)
    if loggers:
        _add(desk, "eval.gin", f"import seqio\nseqio.Evaluator.logger_cls = {loggers}")
    desk.checkpoint(30)
    assert main(["auxiliary", "train.gin", *EVALUATING, "--no-plan"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert all(part in said for part in message.split("…"))


def test_each_macro_for_an_output_folder_is_the_controllers() -> None:
    assert set(OUTPUT_MACROS) < set(REPLACED_MACROS)


def test_a_binding_of_the_train_job_alone(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.checkpoint(30)
    assert desk.run("--gin.DROPOUT_RATE=0.5", "--auxiliary_job_binding=BATCH = 8") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert (
        "warning AUX05: DROPOUT_RATE = 0.5 is for the train job: with replace_gin_file the auxiliary jobs do not get "
        "it fix: give --auxiliary_job_binding='DROPOUT_RATE = 0.5' too if they are to have it"
    ) in said
    assert desk.calls[0]["BATCH"] == "8"
    assert "DROPOUT_RATE" not in desk.calls[0]


def test_jobs_of_this_machine_are_planned_before_anything_starts(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = Finding("SEQ07", Severity.ERROR, Stage.RESOLVE, "no task 'numbres'", fix="did you mean 'numbers'?")
    asked = []

    def plan_jobs(template: JobTemplate, last_step: int | None) -> list[RunResult]:
        asked.append((template.request.mixtures, last_step))
        return [RunResult(RunSpec(("eval.gin",)), (StageResult(Stage.RESOLVE, Outcome.FAILED, (unknown,)),))]

    monkeypatch.setattr("t5x_harness.commands.auxiliary.plan_jobs", plan_jobs)
    words = ["--auxiliary_job_mixtures=numbres", *EVALUATING[1:], "--", sys.executable, "-c", "open('began', 'w')"]
    desk.checkpoint(30)
    assert main(["auxiliary", "train.gin", *words]) == 1
    said = capsys.readouterr().err
    assert "no task 'numbres'" in said
    assert said.endswith("t5x-harness auxiliary: nothing was started: fix what was found, or give --no-plan\n")
    assert asked == [(("numbres",), 30)]
    assert not (desk.folder / "began").exists()
    assert desk.calls == []


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (
            "",
            ["eval.gin"],
            "eval.gin: binds no parameter of train, so it is not a train job's config; name the train job's file",
        ),
        (
            "MODEL_DIR = %gin.REQUIRED",
            ["train.gin"],
            "MODEL_DIR of the train job is open: give --model_dir, the folder",
        ),
        ("include 'nope.gin'", ["train.gin"], "the train job's config cannot be read: train.gin:"),
    ],
)
def test_a_train_job_that_is_none(
    desk: Desk, capsys: pytest.CaptureFixture[str], text: str, arguments: list[str], message: str
) -> None:
    _add(desk, "train.gin", text)
    assert main(["auxiliary", *arguments, "--auxiliary_job_mixtures=numbers"]) == 1
    assert f"t5x-harness auxiliary: {message}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no TRAIN_GIN: name the gin files of the train job whose checkpoints the jobs are for"),
        (["train.gin", "--auxiliary_job_platform=v3-7"], "v3-7"),
        (
            ["train.gin", "--train_job=1", "--strategy=SPOT", "--tpu-max-chip-hours=1"],
            "--strategy, --tpu-max-chip-hours, --train_job: that is of jobs on Vertex AI: give --on=vertex, or leave",
        ),
        (
            ["train.gin", "--on=vertex", "--auxiliary_job_cell=iz"],
            "--auxiliary_job_cell=iz is a cell of Google's own clusters: give a region of Vertex AI, such as us-centr",
        ),
        (
            ["train.gin", "--on=vertex", "--auxiliary_job_cell=us-central1", "--location=us-east1"],
            "--auxiliary_job_cell=us-central1 and --location=us-east1: give one of them",
        ),
        (["train.gin", "--on=vertex", "--strategy=cheap"], "strategy 'cheap': there are STANDARD, SPOT, FLEX_START"),
        (["train.gin", "--gin.TRAIN_STEPS=%LATER"], "does not say at which step it ends: give --last_step=N"),
        (["train.gin", "--replace_gin_file=perhaps"], "--replace_gin_file=perhaps: it must be True or False"),
    ],
)
def test_wrong_usage(desk: Desk, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    own = [] if not arguments else ["--auxiliary_job_build_target=stand_in_job", *EVALUATING[:2], "--replace_gin_file"]
    assert main(["auxiliary", *own, *arguments]) == 2
    assert message in capsys.readouterr().err
    assert desk.calls == []


def _add(desk: Desk, file: str, text: str) -> None:
    path = Path(desk.folder / file)
    path.write_text(f"{path.read_text()}{text}\n")


def _failing(*_: object) -> str:
    from t5x_harness.auxiliary.jobs import AuxiliaryError

    raise AuxiliaryError("it is not to be started")


@pytest.mark.usefixtures("desk")
def test_a_bucket_without_its_client(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = pytest.importorskip("google.cloud")
    monkeypatch.setitem(sys.modules, "google.cloud.storage", None)
    monkeypatch.delattr(cloud, "storage", raising=False)  # another test may have imported it
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    words = ["auxiliary", "train.gin", "--gin.MODEL_DIR='gs://my-bucket/run'", *EVALUATING]
    assert main([*words, "--status"]) == 1
    assert "t5x-harness auxiliary: buckets need google-cloud-storage, not installed here (" in capsys.readouterr().err
    assert main([*words, "--on=vertex"]) == 2
    assert "jobs need google-cloud-aiplatform, not installed here" in capsys.readouterr().err


def test_what_the_guides_script_gives_xmanager_is_accepted_and_said(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    script = ["--cell=iz", "--platform=jf_2x2", "--auxiliary_job_cell=iz", "--auxiliary_job_platform=jf_2x2"]
    desk.checkpoint(30)
    assert desk.run(*script, "--name=continuous_eval_test", "--final_auxiliary_job_steps=0") == 0
    expected = "not used: --cell=iz, --platform=jf_2x2, --auxiliary_job_cell=iz, of XManager's clusters; jobs run on"
    assert f"t5x-harness auxiliary: {expected}" in capsys.readouterr().err
    assert len(desk.calls) == 1
