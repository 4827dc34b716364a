"""T5X runs as messages for CreateCustomJob."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.version import __version__
from t5x_harness.vertex import JobError, OverrideError, RunModeError, T5XJob, VertexTarget

pytest.importorskip("google.cloud.aiplatform_v1")

TARGET = VertexTarget("my-project", "us-central1", "my-bucket", "us-docker.pkg.dev/my-project/t5x/t5x:1")
STAMP = "20260102-030405"
RUN = f"gs://my-bucket/t5x-harness/runs/my-run/{STAMP}"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "My run.gin").write_text("include 't5x/configs/runs/pretrain.gin'\nTRAIN_STEPS = 10\n")
    return tmp_path


def _job(project: Path, **arguments: Any) -> T5XJob:
    given = {"run_mode": "train", "machine": "v3-8", "target": TARGET, "cwd": str(project), **arguments}
    return dataclasses.replace(T5XJob.from_gin("My run.gin", **given), stamp=STAMP)


def test_the_message_has_one_pool_of_one_replica(project: Path) -> None:
    job = _job(project, machine="v3-32", timeout=7200)
    message = job.to_pb()
    (pool,) = message.job_spec.worker_pool_specs
    assert message.display_name == f"my-run-{STAMP}"
    assert pool.replica_count == 1
    assert pool.machine_spec.accelerator_type.name == "TPU_V3"
    assert pool.machine_spec.accelerator_count == 32
    assert pool.container_spec.image_uri == TARGET.image
    assert message.job_spec.scheduling.timeout.total_seconds() == 7200
    assert message.job_spec.base_output_directory.output_uri_prefix == RUN
    assert dict(message.labels) == {
        "t5x_harness_version": __version__.replace(".", "-"),
        "t5x_harness_spec": job.digest,
    }


def test_gin_is_read_at_gcs_and_results_are_written_to_gs(project: Path) -> None:
    job = _job(project, bindings=["--gin.TRAIN_STEPS=20", "import seqio"])
    assert job.args == (
        "--run_mode=train",
        f"--gin_file=/gcs/my-bucket/t5x-harness/staged/{job.closure.digest}/gin/My run.gin",
        f'--gin.MODEL_DIR="{RUN}/model"',
        "--gin.TRAIN_STEPS=20",
        "--gin_bindings=import seqio",
    )
    assert job.stage == f"gs://my-bucket/t5x-harness/staged/{job.closure.digest}"


@pytest.mark.parametrize("given", ["gs://b/runs/1", "gs://b/runs/1/", "/gcs/b/runs/1"])
def test_the_configs_model_dir_is_passed_in_the_form_for_writing(project: Path, given: str) -> None:
    job = _job(project, bindings=[f"MODEL_DIR = '{given}'"])
    assert job.model_dir == "gs://b/runs/1"
    assert [arg for arg in job.args if "MODEL_DIR" in arg] == ['--gin.MODEL_DIR="gs://b/runs/1"']


def test_the_data_folder_is_a_flag_only_where_there_is_one(project: Path) -> None:
    assert not any("tfds" in arg for arg in _job(project).args)
    assert _job(project, tfds_data_dir="/gcs/b/data").args[-1] == "--tfds_data_dir=gs://b/data"
    with pytest.raises(JobError, match="--tfds_data_dir /data: the job does not have this folder"):
        _ = _job(project, tfds_data_dir="/data").args


@pytest.mark.parametrize("given", ["gs://", "gs:///x", "/gcs/", "/gcs//x"])
def test_an_address_without_a_bucket_is_refused(project: Path, given: str) -> None:
    with pytest.raises(JobError) as caught:
        _ = _job(project, bindings=[f"MODEL_DIR = '{given}'"]).args
    assert str(caught.value) == (
        f"MODEL_DIR = '{given}': that names no bucket. Bind MODEL_DIR to a folder of one, as gs://BUCKET/FOLDER, or "
        f"leave it out: then it is {RUN}/model"
    )
    with pytest.raises(JobError) as caught:
        _ = _job(project, tfds_data_dir=given).args
    assert str(caught.value) == (
        f"--tfds_data_dir {given}: that names no bucket; give a folder of one, as gs://BUCKET/FOLDER"
    )


def test_staged_modules_come_before_those_of_the_image(project: Path) -> None:
    (project / "tasks.py").write_text("")
    target = dataclasses.replace(TARGET, image_python_path="/tasks")
    job = _job(project, target=target, bindings=["import tasks"])
    (variable,) = job.to_pb().job_spec.worker_pool_specs[0].container_spec.env
    assert variable.name == "PYTHONPATH"
    assert variable.value == f"/gcs/my-bucket/t5x-harness/staged/{job.closure.digest}/python:/tasks"
    assert not _job(project).to_pb().job_spec.worker_pool_specs[0].container_spec.env


@pytest.mark.parametrize("mode", ["train", "eval", "infer", "precompile"])
def test_every_mode_goes_through_main(project: Path, mode: str) -> None:
    assert _job(project, run_mode=mode).args[0] == f"--run_mode={mode}"


def _reading(project: Path, mode: str, text: str) -> T5XJob:
    """Returns a job that evaluates or infers with T5X's own config for that mode."""
    (project / "My run.gin").write_text(f"include 't5x/configs/runs/{mode}.gin'\n{text}")
    return _job(project, run_mode=mode)


@pytest.mark.parametrize(("mode", "macro"), [("eval", "EVAL_OUTPUT_DIR"), ("infer", "INFER_OUTPUT_DIR")])
def test_evaluation_and_inference_get_the_folder_that_their_configs_leave_open(
    project: Path, mode: str, macro: str
) -> None:
    checkpoint = "CHECKPOINT_PATH = 'gs://b/checkpoint_1'\n"
    job = _reading(project, mode, checkpoint)
    assert job.model_dir == f"{RUN}/model"
    assert job.args[2:] == (f'--gin.{macro}="{RUN}/model"',)
    job = _reading(project, mode, f"{checkpoint}{macro} = '/gcs/b/results/'\n")
    assert (job.model_dir, job.args[2:]) == ("gs://b/results", (f'--gin.{macro}="gs://b/results"',))
    with pytest.raises(JobError, match=f"^{macro} = '/tmp/x': that is a folder of the job's container, and is gone"):
        _ = _reading(project, mode, f"{checkpoint}{macro} = '/tmp/x'\n").args


@pytest.mark.parametrize(
    ("text", "folder", "bound"),
    [
        ("OUT = 'gs://b/o'\nEVAL_OUTPUT_DIR = %OUT", "gs://b/o", ["EVAL_OUTPUT_DIR", "OUT"]),
        ("script.evaluate.output_dir = %OUT", f"{RUN}/model", ["EVAL_OUTPUT_DIR", "OUT"]),
        ("script.evaluate.output_dir = 'gs://b/o'", "gs://b/o", ["EVAL_OUTPUT_DIR"]),
        ("MODEL_DIR = %gin.REQUIRED", f"{RUN}/model", ["EVAL_OUTPUT_DIR", "MODEL_DIR"]),
        ("MODEL_DIR = '/not/written/to'", f"{RUN}/model", ["EVAL_OUTPUT_DIR"]),
    ],
)
def test_the_folder_is_found_however_the_config_names_it(
    project: Path, text: str, folder: str, bound: list[str]
) -> None:
    imports = "from __gin__ import dynamic_registration\nimport __main__ as script\n"
    job = _reading(project, "eval", f"{imports}CHECKPOINT_PATH = 'gs://b/checkpoint_1'\n{text}\n")
    assert job.model_dir == folder
    assert job.args[2:] == tuple(f'--gin.{name}="{folder}"' for name in bound)


@pytest.mark.parametrize("mode", ["eval", "infer"])
def test_a_checkpoint_that_nobody_names_is_asked_for_before_a_tpu_is(project: Path, mode: str) -> None:
    with pytest.raises(
        JobError, match="CHECKPOINT_PATH has no value, and T5X would stop at that: bind it to the gs://"
    ):
        _ = _reading(project, mode, "").args


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("train_unfragmented", "for 'train_unfragmented' use train"),
        ("x", "--run_mode 'x': T5X's main takes train, eval, infer, precompile"),
    ],
)
def test_other_modes_are_refused(project: Path, mode: str, message: str) -> None:
    with pytest.raises(RunModeError, match=re.escape(message)):
        _job(project, run_mode=mode)


def test_without_a_gin_file_there_is_no_job() -> None:
    with pytest.raises(JobError, match="a T5X job needs a gin file"):
        T5XJob.from_gin(run_mode="train", machine="v3-8", target=TARGET)


@pytest.mark.parametrize("timeout", [0, -1, 0.5, "4h", True])
def test_a_timeout_that_is_none_makes_no_job(project: Path, timeout: Any) -> None:
    """Vertex AI would take 0 as a week, but our calculation would yield no chip-hours."""
    with pytest.raises(JobError, match=f"^timeout {timeout!r}: give whole seconds above zero, such as 4 "):
        _job(project, timeout=timeout)


def test_paths_may_be_objects(project: Path) -> None:
    (project / "tasks.py").write_text("")
    given: dict[str, Any] = {
        "search_paths": [project],
        "python_path": [project],
        "bindings": ["import tasks"],
        "cwd": project.parent,
    }
    job = T5XJob.from_gin(project / "My run.gin", run_mode="train", machine="v3-8", target=TARGET, **given)
    assert [file.name for file in job.staged_files][-1] == "python/tasks.py"


def test_one_binding_is_a_list_of_one(project: Path) -> None:
    with pytest.raises(OverrideError, match=r"^bindings are a list: \['TRAIN_STEPS = 1'\], not 'TRAIN_STEPS = 1'$"):
        _job(project, bindings="TRAIN_STEPS = 1")


def test_jobs_that_do_the_same_have_the_same_digest(project: Path) -> None:
    first = _job(project)
    assert dataclasses.replace(first, stamp="20260102-030406").digest == first.digest
    assert _job(project, timeout=60).digest == first.digest
    others = [
        _job(project, bindings=["TRAIN_STEPS = 11"]),
        _job(project, machine="v3-32"),
        _job(project, target=dataclasses.replace(TARGET, image="other")),
        _job(project, run_mode="eval"),
    ]
    assert len({first.digest, *(other.digest for other in others)}) == 5
