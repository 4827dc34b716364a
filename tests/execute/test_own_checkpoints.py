"""Runs that restore the user's own full-size checkpoint, which is in a bucket that the user provided."""

import concurrent.futures
import hashlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import t5x_in_use
from local_run import LocalRun
from small_model import MODEL

from t5x_harness.google.gcs_mount.mount import MountMode as MountMode
from t5x_harness.google.gcs_mount.probing import refusal
from t5x_harness.google.pool import GooglePool
from t5x_harness.runs.local import LocalExecutor
from t5x_harness.runs.run import Run
from t5x_harness.spec import Outcome, RunResult, RunSettings, RunSpec, Stage
from t5x_harness.variables import ROOT_VARIABLE
from t5x_harness.workers.zygote import Zygote

HERE = Path(__file__).parent
REFERENCE = HERE.parent / "reference"
STEP = 20_000

LARGER = """
network.T5Config.emb_dim = 128
network.T5Config.num_heads = 4
network.T5Config.head_dim = 32
network.T5Config.mlp_dim = 128
"""
TRAIN = f"""
INITIAL_CHECKPOINT_PATH = '{{checkpoint}}'
TRAIN_STEPS = {STEP + 1000}
BATCH_SIZE = 8
USE_CACHED_TASKS = False
LOSS_NORMALIZING_FACTOR = 100
MODEL_DIR = 'gs://mine/run'
train_script.train.eval_period = 500
train_script.train.eval_steps = 1
utils.SaveCheckpointConfig.period = 500
"""
WITHOUT_TRAINING = """
CHECKPOINT_PATH = '{checkpoint}'
MODE_OUTPUT_DIR = 'gs://mine/out'
utils.DatasetConfig.batch_size = 8
"""
CONFIGS = {"train": MODEL.format(mode="train", run="finetune") + LARGER + TRAIN}
for _mode in ("eval", "infer"):
    CONFIGS[_mode] = MODEL.format(mode=_mode, run=_mode) + LARGER + WITHOUT_TRAINING.replace("MODE", _mode.upper())


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def spec_of(file: Path, buckets: Path, **options: Any) -> RunSpec:
    return RunSpec(
        (str(file),),
        slice="v3:1x1",
        runtime=t5x_in_use.name,
        python_path=(str(HERE), str(REFERENCE)),
        cwd=str(file.parent),
        settings=RunSettings(gcs_root=str(buckets), **options),
    )


@pytest.fixture(scope="module")
def buckets(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The user's folder of buckets, with a model in each layout, in which no run changes a byte."""
    if not GooglePool.is_installed():
        pytest.skip("the extra google is not installed")
    folder = tmp_path_factory.mktemp("user")
    (folder / "writer.gin").write_text(CONFIGS["train"].replace("{checkpoint}", f"gs://none/checkpoint_{STEP}"))
    spec = RunSpec(("writer.gin",), runtime=t5x_in_use.name, slice="v3:1x1", cwd=str(folder))
    writer = zygote.start(
        "checkpoint_writer:open_writer",
        {"spec": spec.to_json(), "workspace": str(folder / "writer")},
        log=folder / "writer.log",
        cwd=folder,
        python_path=(str(HERE.parent), str(HERE), str(REFERENCE)),
    )
    with writer:
        folders = {layout: str(folder / "buckets/mine" / layout) for layout in ("orbax", "legacy")}
        assert writer.call("write", folders=folders, step=STEP, timeout=120) > 0
    # Like a checkpoint that orbax has finished on Cloud Storage, or a copy of one.
    (folder / "buckets/mine/orbax" / f"checkpoint_{STEP}" / "commit_success.txt").touch()
    before = digests(folder / "buckets")
    yield folder / "buckets"
    assert digests(folder / "buckets") == before


@pytest.fixture
def run(zygote: Zygote, buckets: Path, tmp_path: Path) -> Iterator[Callable[..., RunResult]]:
    """Completes a run in the given mode from a checkpoint at an address; ``extra`` is appended to its config."""
    pools: dict[str, GooglePool] = {}

    def make(mode: str, checkpoint: str, extra: str = "", *, name: str = "run", **options: Any) -> RunResult:
        file = tmp_path / f"{name}.gin"
        file.write_text(CONFIGS[mode].replace("{checkpoint}", checkpoint) + extra)
        worker, until = options.pop("worker", zygote), options.pop("until", None)
        spec = spec_of(file, buckets, **options)
        pool = pools.setdefault(spec.settings.gcs, GooglePool(spec.settings.gcs_root, spec.settings.gcs))
        with Run(spec, LocalExecutor(worker, timeout=300, google=pool), workspace=tmp_path / name) as run:
            found = run.stage(until or run.stages[-1])
            assert found.outcome is Outcome.PASSED, (run.done, found.log_tail)
            return run.result()

    yield make
    for pool in pools.values():
        pool.close()


def test_two_runs_at_once_start_from_the_same_checkpoint(run: Callable[..., RunResult]) -> None:
    """Each run has its own stand-in at the address that both name, and neither reads the other's.

    One of them writes next to the checkpoint, and restores it nevertheless.
    """
    results: dict[str, RunResult] = {}

    def make(mode: str, layout: str) -> None:
        extra = "EVAL_OUTPUT_DIR = 'gs://mine/orbax'\n" if mode == "eval" else ""
        results[mode] = run(mode, f"gs://mine/{layout}/checkpoint_{STEP}", extra, name=mode)

    layouts = {"eval": "orbax", "infer": "legacy"}
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        list(threads.map(make, layouts, layouts.values()))
    for mode, layout in layouts.items():
        result = results[mode]
        restored = f"gs://mine/{layout}/checkpoint_{STEP}"
        stage = result.stage(mode)
        assert dict(stage.facts)["starts from"] == f"a stand-in of the model's shapes at step {STEP}"
        (doubt,) = [text for text in stage.not_checked if text.startswith("the values of")]
        assert doubt == (
            f"the values of {restored}: generated ones in the shrunk model's shapes at step {STEP} stand in for them"
        )
        assert "arrays agree" in dict(result.stage("plan").facts)["checkpoint fits"]
    assert results["infer"].predictions


RESHAPED = """
utils.RestoreCheckpointConfig.state_transformation_fns = [@stage_tasks.without_logits]
utils.RestoreCheckpointConfig.fallback_to_scratch = True
"""
RENAMED = r"""
utils.RestoreCheckpointConfig.assignment_map = [('(.*)/encoder/encoder_norm/(.*)', r'\1/decoder/decoder_norm/\2')]
"""


@pytest.mark.journey
def test_a_transformed_checkpoint_is_as_small_as_the_model(run: Callable[..., RunResult]) -> None:
    """The stand-in has the checkpoint's contents under its names, because it is the input of the user's function."""
    result = run("train", f"gs://mine/orbax/checkpoint_{STEP}", RESHAPED, until=Stage.TRAIN)
    assert result.steps == STEP + 4


@pytest.mark.journey
def test_a_map_renames_in_the_older_layout(run: Callable[..., RunResult]) -> None:
    result = run("train", f"gs://mine/legacy/checkpoint_{STEP}", RENAMED, until=Stage.TRAIN)
    assert result.steps == STEP + 4


@pytest.mark.journey
@pytest.mark.parametrize("mode", ["train", "eval", "infer"])
@pytest.mark.parametrize("layout", ["orbax", "legacy"])
@pytest.mark.parametrize("prefix", ["gs://", "/gcs/"])
def test_every_mode_finds_its_stand_in(run: Callable[..., RunResult], mode: str, layout: str, prefix: str) -> None:
    run(mode, f"{prefix}mine/{layout}/checkpoint_{STEP}")


@pytest.mark.journey
@pytest.mark.parametrize("layout", ["orbax", "legacy"])
def test_the_real_checkpoint_is_restored_at_full_size(run: Callable[..., RunResult], layout: str) -> None:
    path = f"gs://mine/{layout}/checkpoint_{STEP}"
    result = run("eval", path, f"EVAL_OUTPUT_DIR = 'gs://mine/{layout}'\n", full_size=True)
    assert result.checkpoints == ()
    assert dict(result.stage("eval").facts)["starts from"] == path
    assert result.standins == ()


@pytest.mark.journey
def test_a_run_that_is_killed_leaves_the_checkpoint_to_the_next(zygote: Zygote, buckets: Path, tmp_path: Path) -> None:
    """The run is killed while its stand-in replaces the user's checkpoint in its copy of the bucket."""
    file = tmp_path / "run.gin"
    file.write_text(CONFIGS["train"].replace("{checkpoint}", f"gs://mine/orbax/checkpoint_{STEP}"))
    spec, pool = spec_of(file, buckets), GooglePool(buckets)

    def kill(progress: Mapping[str, Any]) -> None:
        if progress.get("step"):
            assert backend.executor._process is not None
            os.kill(backend.executor._process.pid, signal.SIGKILL)

    try:
        for number, on_progress in enumerate((kill, None)):
            given = pool.enter()
            assert digests(Path(given[ROOT_VARIABLE], "buckets")) == digests(buckets)
            workspace = tmp_path / str(number)
            with LocalRun(
                spec, zygote=zygote, workspace=workspace, timeout=300, on_progress=on_progress, env=given
            ) as backend:
                result = backend.stage(Stage.TRAIN)
            pool.leave(given)
            if number == 0:
                assert [finding.code for finding in result.errors] == ["RUN07"]
            else:
                assert result.outcome is Outcome.PASSED, (result.findings, result.log_tail)
    finally:
        pool.close()


@pytest.mark.journey
def test_through_cloud_storage_fuse(run: Callable[..., RunResult]) -> None:
    if refused := refusal(MountMode.FUSE):
        pytest.skip(f"/gcs in mode fuse cannot be mounted here: {refused}")
    run("infer", f"/gcs/mine/legacy/checkpoint_{STEP}", gcs="fuse")
