"""The sample configs have no findings, and run to the end; a broken copy of each fails in the cheapest stage that can.

One of each kind is run here. ``tox run -e smoke`` runs all of them.
"""

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import t5x_in_use

from t5x_harness.gin.reading import program_of
from t5x_harness.lint.classify import classify_program
from t5x_harness.lint.stage import lint_program
from t5x_harness.runs.run import Run
from t5x_harness.sample_tasks import CONFIGS
from t5x_harness.spec import Mode, Outcome, RunSpec, Stage

RUNS = sorted(path.name for path in CONFIGS.glob("*.gin"))
FRAGMENTS = sorted(path.name for path in CONFIGS.glob("models/*.gin"))


def spec_of(name: str) -> RunSpec:
    return RunSpec((name,), search_paths=(".",), runtime=t5x_in_use.name, cwd=str(CONFIGS))


def test_every_kind_of_run_is_there() -> None:
    modes = {name: classify_program(program_of(spec_of(name))).mode for name in RUNS}
    assert {name.partition("_")[0]: mode for name, mode in modes.items()} == {
        "pretrain": Mode.TRAIN,
        "finetune": Mode.TRAIN,
        "eval": Mode.EVAL,
        "infer": Mode.INFER,
    }


@pytest.mark.parametrize("name", FRAGMENTS)
def test_a_model_is_not_a_run(name: str) -> None:
    assert classify_program(program_of(spec_of(f"models/{name}"))).mode is None


@pytest.mark.parametrize("name", RUNS)
def test_lint_finds_nothing(name: str) -> None:
    result = lint_program(program_of(spec_of(name)))
    assert (result.outcome, result.findings) == (Outcome.PASSED, ())


@pytest.mark.journey
def test_a_train_config_passes_every_stage_without_a_finding_and_repeats_in_another_process(
    make_run: Callable[[RunSpec], Run], tmp_path: Path
) -> None:
    run = make_run(spec_of("finetune_translate.gin"))
    for stage in run.stages:
        result = run.stage(stage)
        assert (stage, result.outcome, result.findings) == (stage, Outcome.PASSED, ())
        assert result.exercised
    assert ("mesh", "data 4 x model 2") in run.stage(Stage.PLAN).facts

    result = run.result()
    assert (result.steps, [c.step for c in result.checkpoints]) == (10_004, [10_000, 10_002, 10_004])
    assert sorted(result.metrics["train/loss"]) == [10_001, 10_002, 10_003, 10_004]
    assert sorted(result.metrics["inference_eval/sample_translate/eval/bleu"]) == [10_002, 10_004]
    assert {tuple(sorted(line)) for line in result.predictions} == {
        ("input", "output", "prediction", "target"),  # of the evaluation
        ("inputs", "prediction"),
    }
    assert "TRAIN_STEPS = 10004" in result.operative_config
    assert Path(result.model_dir, "model-info.txt").is_file()
    assert ("TRAIN_STEPS", "12000", "10004") in [(c.binding, c.before, c.after) for c in result.changes]

    assert [(c.binding, c.before, c.after) for c in result.changes if c.why == "repeatable"] == [
        ("train/utils.DatasetConfig.seed", "None", "0"),
        ("RANDOM_SEED", "None", "0"),
        ("USE_HARDWARE_RNG", "False", "True"),
    ]
    report = tmp_path / "report.json"
    command = ["run", "finetune_translate.gin", "--until=train", "--json", f"--output={report}"]
    again = [sys.executable, "-m", "t5x_harness", *command, f"--t5x-runtime={t5x_in_use.name}"]
    subprocess.run(again, cwd=CONFIGS, check=True, timeout=300)
    [there] = json.loads(report.read_text())["runs"]
    assert {int(step): loss for step, loss in there["metrics"]["train/loss"].items()} == result.metrics["train/loss"]


def test_an_infer_config_scores_its_targets(make_run: Callable[[RunSpec], Run]) -> None:
    run = make_run(spec_of("infer_answer.gin"))
    for stage in run.stages:
        result = run.stage(stage)
        assert (stage, result.outcome, result.findings) == (stage, Outcome.PASSED, ())
    result = run.result()
    assert len(result.predictions) == 8
    assert all(line["score"] < 0 for line in result.predictions)
    assert {path.name for path in Path(result.model_dir).iterdir()} >= {
        "sample_answer-score.jsonl-00000-of-00001",
        "sample_answer-score.jsonl-00000-of-00001.COMPLETED",
    }


@dataclasses.dataclass(frozen=True)
class Broken:
    """One mistake, and the expected finding about it.

    Attributes:
      config: the sample config that contains it.
      before: the text that it replaces.
      after: the mistake.
      stage: the stage that must fail.
      code: the code of the finding.
      message: a part of the finding's message.
      fix: a part of its fix.
      file: the file that the finding must point to; the config by default.
      at: a text in the line that it must point to; the mistake by default.
      also: the codes of further findings that follow from the mistake.
    """

    config: str
    before: str
    after: str
    stage: Stage
    code: str
    message: str
    fix: str
    file: str = ""
    at: str = ""
    also: tuple[str, ...] = ()


BROKEN = [
    Broken(
        "eval_answer.gin",
        "import t5x_harness.sample_tasks.tasks",
        "import t5x_harness.sample_tasks.taks",
        Stage.LINT,
        "GIN15",
        "there is no module t5x_harness.sample_tasks.taks",
        "did you mean t5x_harness.sample_tasks.tasks?",
    ),
    Broken(
        "eval_classify.gin",
        "split = 'validation'",
        "split = 'validaton'",
        Stage.RESOLVE,
        "SEQ19",
        "task sample_classify has no split 'validaton' (it has: train, validation)",
        "use 'validation'",
    ),
    Broken(
        "eval_translate.gin",
        "models/tiny_pieces.gin",
        "models/tiny_bytes.gin",
        Stage.RESOLVE,
        "SEQ09",
        " and 1 more use SentencePieceVocabulary",
        "give the model the task's vocabulary",
        file="models/tiny_bytes.gin",
        at="VOCABULARY =",
        also=("SEQ12",),
    ),
    Broken(
        "finetune_answer.gin",
        "num_microbatches = 2",
        "num_microbatches = 3",
        Stage.PLAN,
        "MSH11",
        "the batch size 16 is not divisible by 3 microbatches",
        "set trainer.Trainer.num_microbatches to a divisor of 16",
    ),
    Broken(
        "finetune_classify.gin",
        "eval_period = 500",
        "eval_period = 700",
        Stage.LINT,
        "MSH12",
        "the eval period 700 (train_script.train.eval_period) is not a multiple of the checkpoint period 500 "
        "(utils.SaveCheckpointConfig.period, finetune_classify.gin:22)",
        "make it a multiple of 500, such as 500 or 1000",
    ),
    Broken(
        "finetune_mixture.gin",
        "TRAIN_STEPS = 12_000",
        "TRAIN_STEPS = 2_000",
        Stage.LINT,
        "CKP01",
        "TRAIN_STEPS = 2000 is below step 10000 of the checkpoint gs://my-bucket/pretrained/",
        "TRAIN_STEPS = 12_000",
    ),
    Broken(
        "finetune_sums.gin",
        "'sample_sums'",
        "'sample_sum'",
        Stage.RESOLVE,
        "SEQ04",
        "no task or mixture is called 'sample_sum'",
        "use 'sample_sums'",
    ),
    Broken(
        "finetune_translate.gin",
        "num_partitions = 2",
        "num_partitions = 3",
        Stage.PLAN,
        "MSH03",
        "T5X has no default submesh for num_partitions=3 on TPU v3 (v3-8)",
        "v3-8 can be cut into submeshes of 1, 2, 4 or 8 devices",
    ),
    Broken(
        "infer_answer.gin",
        "infer.mode = 'score'",
        "infer.mode = 'generate'",
        Stage.LINT,
        "INF04",
        "infer.mode cannot be 'generate': T5X knows no other mode and dies",
        "give 'predict', 'score' or 'predict_with_aux'",
    ),
    Broken(
        "infer_span_corruption.gin",
        "include 'models/tiny_pieces.gin'\n",
        "",
        Stage.LINT,
        "GIN18",
        "nothing defines the macro MODEL that infer_script.infer.model reads",
        "include a model's gin file, such as 't5x/examples/t5/t5_1_1/small.gin'",
        at="include 't5x/configs/runs/infer.gin'",
    ),
    Broken(
        "infer_translate.gin",
        "{'inputs': 64, 'targets': 48}",
        "{'inputs': 64}",
        Stage.RESOLVE,
        "SEQ15",
        "task_feature_lengths is {'inputs': 64} and has no length for targets; the model",
        "add targets",
        at="TASK_FEATURE_LENGTHS",
    ),
    Broken(
        "pretrain_span_corruption.gin",
        "BATCH_SIZE = 32",
        "BATCH_SIZE = 30",
        Stage.PLAN,
        "MSH02",
        "the batch size of train and train_eval is 30, and the mesh's data axis has 4 positions with num_partitions",
        "set BATCH_SIZE to 28 or 32",
    ),
    Broken(
        "pretrain_c4.gin",
        "BATCH_SIZE = 256",
        "BATCH_SIZE = 250",
        Stage.PLAN,
        "MSH02",
        "the batch size of train and train_eval is 250, and the mesh's data axis has 8 positions with num_partitions",
        "set BATCH_SIZE to 248 or 256",
    ),
    Broken(
        "pretrain_stream.gin",
        "warmup_steps = 1000",
        "warmup_step = 1000",
        Stage.LINT,
        "GIN13",
        "utils.create_learning_rate_scheduler has no parameter warmup_step; did you mean warmup_steps?",
        "write utils.create_learning_rate_scheduler.warmup_steps",
    ),
    Broken(
        "models/tiny_pieces.gin",
        "vocab_size = 640",
        "vocab_size = 600",
        Stage.RESOLVE,
        "SEQ12",
        "and the embedding has 600 rows; JAX reads another row without an error",
        "set network.T5Config.vocab_size to at least 612",
    ),
]


def test_every_sample_config_is_broken_once() -> None:
    configs = {path.name for path in CONFIGS.glob("*.gin")}
    assert configs
    assert configs <= {each.config for each in BROKEN}


@pytest.mark.journey
@pytest.mark.parametrize("broken", BROKEN, ids=lambda b: f"{b.config}-{b.code}")
def test_a_broken_copy_is_reported_with_its_place_and_fix(
    broken: Broken, make_run: Callable[[RunSpec], Run], tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(CONFIGS, folder)
    text = (folder / broken.config).read_text()
    assert text.count(broken.before) == 1
    (folder / broken.config).write_text(text.replace(broken.before, broken.after))
    name = "pretrain_span_corruption.gin" if broken.config.startswith("models/") else broken.config

    run = make_run(RunSpec((name,), runtime=t5x_in_use.name, cwd=str(folder)))
    results = [run.stage(stage) for stage in run.stages]

    failed = next(result for result in results if result.outcome is Outcome.FAILED)
    at = results.index(failed)
    assert failed.stage is broken.stage, [(f.code, f.message) for f in failed.errors]
    assert [r.outcome for r in results[:at]] == [Outcome.PASSED] * at
    assert [r.outcome for r in results[at + 1 :]] == [Outcome.NOT_RUN] * len(results[at + 1 :])

    assert [f.code for f in failed.errors] == [broken.code, *broken.also]
    finding = failed.errors[0]
    assert broken.message in finding.message
    assert broken.fix in (finding.fix or "")
    assert finding.location is not None
    assert finding.location.file.endswith(broken.file or broken.config)
    if broken.config.startswith("models/"):  # the includes that lead to the line
        assert [str(at) for at in finding.location.included_from] == ["pretrain_span_corruption.gin:10"]
    assert (broken.at or broken.after) in (folder / finding.location.file).read_text().splitlines()[
        finding.location.line - 1
    ]
