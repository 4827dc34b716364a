"""Configs in the style of public ones run unchanged, from gs:// and /gcs, with none of their files within reach.

``community`` is a pretraining recipe: its own 64k vocabulary and its outputs in a bucket, a stream from the Hugging
Face Hub, a shell script. ``script`` is trained by its own shell script, under ``exec``. ``vertex`` has fine-tuning,
evaluation and inference on TFDS as people start them on Vertex AI. ``others`` has a mixture of text files in a bucket,
cached examples, and TFExamples for inference. ``networks`` has T5X's own configs of a language model and of umT5.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import t5x_in_use

from t5x_harness.commands.arguments import add_run_arguments, specs_of
from t5x_harness.google.pool import GooglePool
from t5x_harness.runs.local import LocalExecutor
from t5x_harness.runs.run import Run
from t5x_harness.runtime.choice import Runtime
from t5x_harness.runtime.compile_cache import compile_cheaply
from t5x_harness.settings.command_line import rewrite_gin
from t5x_harness.spec import Outcome, RunResult, RunSpec, Stage
from t5x_harness.workers.zygote import Zygote

pytestmark = pytest.mark.skipif(not GooglePool.is_installed(), reason="the extra google is not installed")

HERE = Path(__file__).parent
SENTENCEPIECE = HERE.parent.parent / "sample_tasks" / "data" / "sentencepiece.model"

RunFlags = Callable[..., RunResult]


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return t5x_in_use.found()


@pytest.fixture(scope="module")
def google() -> Iterator[GooglePool]:
    made = GooglePool()
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str], Path]:
    """Returns a function that makes a copy of a user's folder."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(HERE / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__")))

    return copy


@pytest.fixture
def run(zygote: Zygote, google: GooglePool, runtime: Runtime, tmp_path: Path) -> RunFlags:
    """Returns a function that runs what T5X's flags name in a folder, up to a stage."""

    def run(where: Path, *flags: str, until: Stage | None = None) -> RunResult:
        spec = spec_of(where, *flags)
        workspace = tmp_path / "workspace"
        workspace.mkdir(exist_ok=True)
        executor = LocalExecutor(zygote, timeout=600, google=google)
        with Run(spec, executor, workspace=workspace, t5x_parent=runtime.location) as run:
            run.stage(until or run.stages[-1])
            return run.result()

    return run


def spec_of(where: Path, *flags: str) -> RunSpec:
    """Returns the run that ``t5x-harness run`` makes from T5X's flags in a folder."""
    parser = argparse.ArgumentParser()
    add_run_arguments(parser, "run")
    (spec,) = specs_of(parser.parse_args(rewrite_gin([f"--t5x-runtime={t5x_in_use.name}", *flags])), where)
    return spec


def assert_passed(result: RunResult, *stages: Stage) -> None:
    """Asserts that every stage passed, did something, and changed nothing in the config except sizes and the seed."""
    assert tuple(stage.stage for stage in result.stages) == stages
    for stage in result.stages:
        assert stage.outcome is Outcome.PASSED, (stage.findings, stage.log_tail)
        assert not stage.errors
        assert stage.exercised
    assert {change.why for change in result.changes} <= {"shrink", "repeatable", "standin"}


TRAINING = (Stage.LINT, Stage.RESOLVE, Stage.PLAN, Stage.TRAIN, Stage.EVAL, Stage.INFER)
VOCABULARY = "vocabulary: 'gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model'"


def flags_of(script: Path) -> list[str]:
    """Returns the flags with which a shell script starts T5X, by running it with a Python that prints them."""
    tools = script.parent / "tools"
    tools.mkdir()
    python = tools / "python3"
    python.write_text(f'#!{sys.executable}\nimport sys\nprint("\\0".join(sys.argv[1:]), end="")\n')
    python.chmod(0o755)
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    told = subprocess.run(["bash", str(script)], env=env, capture_output=True, text=True, check=True)
    module, *flags = told.stdout.removeprefix("-m\0").split("\0")
    assert module == "t5x.main"
    return flags


@pytest.mark.journey
def test_a_community_recipe_pretrains_from_its_shell_script(run: RunFlags, folder) -> None:
    pytest.importorskip("datasets")
    where = folder("community")
    result = run(where, *flags_of(where / "nordlys_base.sh"))
    assert_passed(result, *TRAINING)
    assert set(result.standins) == {
        "vocabulary: 'gs://nordlys-lm/sentencepiece/nordlys_64k.model'",
        "load_dataset: 'nordlys/web-no'",
    }
    assert "MODEL_DIR = 'gs://nordlys-lm/models/nordlys_base'" in result.operative_config
    assert ("mesh", "data 4 x model 2") in result.stage(Stage.PLAN).facts
    assert [checkpoint.step for checkpoint in result.checkpoints] == [0, 2, 4]
    # Only a note, on what a restart loses with MODEL_DIR at gs://.
    assert [finding.code for stage in result.stages for finding in stage.findings] == ["CKP26"]
    assert "'gs://nordlys-lm/sentencepiece/nordlys_64k.model'" in result.operative_config


@pytest.mark.journey
def test_a_start_script_that_sets_the_import_path_trains_under_exec(folder) -> None:
    """The script sets PYTHONPATH to only its own folder; T5X, the slice's mesh and the buckets remain available."""
    where = folder("script")
    bucket = where / "cloud" / "buckets" / "fjord-lm"
    (bucket / "sentencepiece").mkdir(parents=True)
    shutil.copy(SENTENCEPIECE, bucket / "sentencepiece" / "fjord.model")
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    compile_cheaply(env)
    words = ["exec", f"--t5x-runtime={t5x_in_use.name}", "--google-root=cloud", "--", "bash", "fjord_tiny.sh"]
    done = subprocess.run(
        [sys.executable, "-m", "t5x_harness", *words],
        cwd=where,
        env=env,
        check=False,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    written = bucket / "models" / "fjord_tiny"
    assert [len(row) for row in devices_of(written / "checkpoint_2")] == [2, 2, 2, 2]
    assert "gs://fjord-lm/models/fjord_tiny" in (written / "config.gin").read_text()


def test_without_rows_a_stream_is_asked_for(run: RunFlags, folder) -> None:
    pytest.importorskip("datasets")
    where = folder("community")
    (where / "pyproject.toml").write_text("[tool.t5x_harness]\n")
    result = run(where, "nordlys_base.gin", until=Stage.RESOLVE)
    (finding,) = result.stage(Stage.RESOLVE).errors
    assert finding.code == "RUN09"
    assert str(finding.location) == "nordlys_tasks.py:16"
    assert finding.message.startswith("load_dataset('nordlys/web-no') cannot reach its dataset here")
    assert '"hf:nordlys/web-no" = "rows.jsonl"' in finding.fix


def devices_of(checkpoint: Path) -> list[list[int]]:
    """Returns the mesh of devices that held a checkpoint's arrays."""
    text = json.loads((checkpoint / "state" / "_sharding").read_text())
    mesh = json.loads(next(iter(text.values())))["device_mesh"]["mesh"]
    return [[device["id"] for device in row] for row in mesh]


@pytest.mark.journey
def test_fine_tuning_as_on_vertex(run: RunFlags, folder) -> None:
    """The plan is for all 64 chips, of which 4 are enough to execute the run."""
    result = run(
        folder("vertex"),
        "--gin_file=configs/finetune_base_wmt.gin",
        '--gin.MODEL_DIR="gs://my-team-t5x/jobs/wmt_base"',
        "--slice=v2-128",
    )
    assert_passed(result, *TRAINING)
    assert set(result.standins) == {
        VOCABULARY,
        "TFDS data of task wmt_de_en: wmt_t2t_translate/de-en:1.0.0",
        "INITIAL_CHECKPOINT_PATH: 'gs://t5-data/pretrained_models/t5x/t5_1_1_base/checkpoint_1000000'",
    }
    assert "MODEL_DIR = 'gs://my-team-t5x/jobs/wmt_base'" in result.operative_config
    assert result.steps == result.checkpoints[-1].step == 1_000_004
    facts = dict(result.stage(Stage.PLAN).facts)
    assert facts["mesh"] == "data 64 x model 2"
    assert facts["steps"].startswith("20000"), facts["steps"]
    changes = {change.binding: (change.before, change.after) for change in result.changes}
    assert changes["mesh"] == ("data 64 x model 2", "data 4 x model 2")
    assert changes["BATCH_SIZE"] == ("128", "8")
    assert [len(row) for row in devices_of(Path(result.checkpoints[-1].path))] == [2, 2, 2, 2]
    assert result.predictions[0]["input"]["inputs_pretokenized"].startswith("translate German to English: ")


@pytest.mark.journey
def test_umt5_with_scanned_layers_is_fine_tuned_from_the_published_checkpoint(run: RunFlags, folder) -> None:
    result = run(folder("networks"), "umt5_tydiqa.gin", '--gin.MODEL_DIR="gs://my-team-t5x/umt5"', "--slice=v4-8")
    assert_passed(result, *TRAINING)
    assert "INITIAL_CHECKPOINT_PATH: 'gs://t5-data/t5-data/pretrained_models/t5x/umt5_base/checkpoint_1000000'" in (
        result.standins
    )
    assert result.steps == result.checkpoints[-1].step == 1_000_004
    assert "592,043,520" in str(result.stage(Stage.PLAN).facts)


@pytest.mark.journey
def test_a_language_model_is_planned_from_the_config_that_t5x_has(run: RunFlags, folder) -> None:
    config = "t5x/examples/decoder_only/examples/base_wmt_from_scratch.gin"
    result = run(folder("networks"), config, '--gin.MODEL_DIR="gs://my-team-t5x/lm"', until=Stage.PLAN)
    assert_passed(result, Stage.LINT, Stage.RESOLVE, Stage.PLAN)
    assert "109,628,544" in str(result.stage(Stage.PLAN).facts)


@pytest.mark.journey
def test_evaluation_as_on_vertex(run: RunFlags, folder) -> None:
    """Its files are in a clone that only the image has, and an earlier job wrote its checkpoint."""
    result = run(folder("vertex"), "configs/eval_xl_xsum.gin")
    assert_passed(result, Stage.LINT, Stage.RESOLVE, Stage.PLAN, Stage.EVAL)
    assert "CHECKPOINT_PATH: 'gs://my-team-t5x/jobs/xsum_xl/checkpoint_1009000'" in result.standins
    assert (
        "whether the job has t5x/t5x/examples/t5/t5_1_1/xl.gin, t5x/t5x/configs/runs/eval.gin: here is no such clone "
        "of T5X's repository, and the T5X in use was read" in result.stage(Stage.RESOLVE).not_checked
    )
    assert any(tag.endswith("rouge1") for tag in result.metrics), result.metrics


@pytest.mark.journey
def test_inference_as_on_vertex_through_mounted_buckets(run: RunFlags, folder) -> None:
    result = run(folder("vertex"), "configs/infer_base_wmt.gin")
    assert_passed(result, Stage.LINT, Stage.RESOLVE, Stage.PLAN, Stage.INFER)
    assert "CHECKPOINT_PATH: '/gcs/my-team-t5x/jobs/wmt_base/checkpoint_1020000'" in result.standins
    assert result.predictions
    assert {"inputs", "prediction"} <= result.predictions[0].keys()


@pytest.mark.journey
def test_a_mixture_of_files_in_a_bucket_runs_on_the_users_rows(run: RunFlags, folder) -> None:
    result = run(folder("others"), "mt5_captions.gin", until=Stage.PLAN)
    assert_passed(result, Stage.LINT, Stage.RESOLVE, Stage.PLAN)
    rates = dict(result.stage(Stage.RESOLVE).facts)["rates of captions train"].split()
    assert rates[3:] == ["captions_de", "3000", "37.5%", "captions_fr", "5000", "62.5%"]  # the sizes that the job has
    assert "source of task: 'captions_de'" in result.standins


@pytest.mark.journey
def test_training_goes_on_with_cached_examples_and_the_latest_checkpoint(run: RunFlags, folder) -> None:
    result = run(folder("others"), "mt5_captions_continue.gin", until=Stage.PLAN)
    assert_passed(result, Stage.LINT, Stage.RESOLVE, Stage.PLAN)
    assert "cached examples of task: captions_de in gs://polyglot-data/cached_tasks" in result.standins
    assert (
        "whether captions_de is cached in gs://polyglot-data/cached_tasks, and by the preprocessors that it has now"
        in result.stage(Stage.RESOLVE).not_checked
    )


@pytest.mark.journey
def test_inference_on_tfexamples_in_a_bucket(run: RunFlags, folder) -> None:
    result = run(folder("others"), "byt5_infer.gin")
    assert_passed(result, Stage.LINT, Stage.RESOLVE, Stage.PLAN, Stage.INFER)
    assert len(result.predictions) == 4
    assert result.predictions[0]["inputs"]["inputs_pretokenized"] == "A man reads the paper on a bench."


@pytest.mark.journey
@pytest.mark.parametrize(
    ("config", "line", "stage", "code", "message"),
    [
        (
            "finetune_base_wmt",
            "network.T5Config.vocab_size = 16_000",
            Stage.RESOLVE,
            "SEQ12",
            "has 32100 ids and the embedding 16000 rows",
        ),
        ("finetune_base_wmt", "BATCH_SIZE = 130", Stage.PLAN, "MSH02", "130 / 4 leaves 2"),
        ("finetune_base_wmt", "TRAIN_STEPS = 20_000", Stage.LINT, "CKP01", "TRAIN_STEPS = 20000 is below step 1000000"),
        ("infer_base_wmt", "utils.DatasetConfig.split = 'dev'", Stage.RESOLVE, "INF11", "'dev'"),
    ],
)
def test_one_wrong_line_is_found(run: RunFlags, folder, config: str, line: str, stage: Stage, code: str, message: str):
    where = folder("vertex")
    file = where / "configs" / f"{config}.gin"
    number = len(file.read_text().splitlines()) + 1
    imports = "from t5x.examples.t5 import network\n" if line.startswith("network") else ""
    file.write_text(f"{file.read_text()}{imports}{line}\n")
    result = run(where, f"configs/{config}.gin", until=stage)
    assert [each.stage for each in result.stages if each.outcome is Outcome.FAILED] == [stage]
    (finding,) = result.stage(stage).errors
    assert (finding.code, str(finding.location)) == (code, f"configs/{config}.gin:{number + bool(imports)}")
    assert message in finding.message
