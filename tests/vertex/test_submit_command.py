"""``t5x-harness submit`` before anything is sent: the jobs that it shows, and the mistakes that it refuses."""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.commands.main import main
from t5x_harness.commands.submit import add_arguments, as_emulated, jobs_of, target_of
from t5x_harness.spec import RunResult, RunSpec

pytest.importorskip("google.cloud.aiplatform_v1")

STAGED = "gs://t5x-harness-jobs/t5x-harness/staged/"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "run.gin").write_text(
        "from __gin__ import dynamic_registration\nimport __main__ as train_script\nimport my_tasks\n"
        "include 't5x/examples/t5/t5_1_1/tiny.gin'\ninclude 't5x/configs/runs/pretrain.gin'\n"
        "MIXTURE_OR_TASK_NAME = 'my_task'\n"
    )
    (tmp_path / "my_tasks.py").write_text("")
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    for name in ("T5X_HARNESS_VERTEX", "T5X_HARNESS_GCS_ROOT", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def dry(harness: Any) -> Any:
    """Does a dry run that ends with a given status; returns its output."""

    def run(status: int, *arguments: str, files: tuple[str, ...] = ("run.gin",)) -> Any:
        return harness(status, "submit", *files, "--vertex=emulated", "--dry-run", "--no-check", *arguments)

    return run


def test_a_dry_run_shows_everything_that_would_be_sent(dry: Any) -> None:
    shown, said = dry(0, "--accelerator=v3-32", "--timeout=1h", "--gin.TRAIN_STEPS=5")
    assert "run: train on cloud-tpu, 32 TPU_V3 cores in us-central1 of t5x-harness\n" in shown
    assert "  chip-hours: v3-32: 16 chips x at most 1 h = 16 chip-hours\n" in shown
    assert "    --gin.TRAIN_STEPS=5\n" in shown
    assert f"  staged in {STAGED}" in shown
    assert "    gin/run.gin (" in shown
    assert "    python/my_tasks.py (0 bytes)\n" in shown
    assert "  the image has to have:\n    t5x/examples/t5/t5_1_1/tiny.gin\n" in shown
    assert '"acceleratorType": "TPU_V3"' in shown
    assert said.splitlines() == [
        "t5x-harness submit: not checked: lint and plan (--no-check)",
        "t5x-harness submit: nothing was sent: --dry-run",
    ]


@pytest.mark.parametrize("how", [[], ["--json"], ["--json", "--output=job.json"]])
def test_secrets_in_variables_are_not_shown(dry: Any, project: Path, how: list[str]) -> None:
    secret = "abcdefgh12345678"
    given = [f"--env=HF_TOKEN={secret}", f"--env=WHERE=https://me:{secret}@example.org/x", "--env=MAX_TOKENS=77"]
    given += [f"--gin.HF_TOKEN='{secret}'", f"--gin.OTHER='hf_{secret}{secret}'"]
    shown = dry(0, "--timeout=1h", *given, *how)
    written = [file.read_text() for file in project.glob("job.json")]
    everything = "".join([*shown, *written])
    assert secret not in everything
    assert everything.count('"***"') == 2 * (1 + len(written))
    assert '"77"' in everything
    assert "--gin.HF_TOKEN='***'" in everything
    assert ("run: train on cloud-tpu" in shown.out) is ("--output=job.json" in how or not how)
    assert all(json.loads(text)["jobs"][0]["name"] == "run" for text in written)


def test_the_same_for_programs(dry: Any) -> None:
    document = json.loads(dry(0, "--json", "--gin.TRAIN_STEPS=5").out)
    (job,) = document["jobs"]
    assert job["slice"] == "v3-8"
    assert job["chip_hours"] == 16
    assert [file["name"] for file in job["staged"]] == ["gin/run.gin", "python/my_tasks.py"]
    container = job["spec"]["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]
    assert container["args"] == job["args"]
    assert container["env"] == [{"name": "PYTHONPATH", "value": f"{job['stage'].replace('gs://', '/gcs/')}/python"}]
    assert job["spec"]["jobSpec"]["scheduling"] == {"timeout": "14400s"}
    assert document["sent"] == []
    assert document["notes"][-1] == "nothing was sent: --dry-run"


def test_what_lint_finds_stops_the_job(harness: Any) -> None:
    options = ("--vertex=emulated", "--dry-run", "--gcs=off", "--gin.utils.Nope.x=1")
    shown, said = harness(1, "submit", "run.gin", *options)
    assert "utils.Nope" in shown
    assert said.splitlines()[-1] == (
        "t5x-harness submit: nothing was sent: fix what was found, or send it as it is with --no-check"
    )


def test_submits_at_once_check_in_folders_of_their_own_and_remove_those_of_killed_ones(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path] = []
    (project / "temporary" / "t5x-harness-plan-killed").mkdir(parents=True)
    (project / "temporary" / "t5x-harness-plan-killed" / "lock").touch()  # a lock that nobody holds

    def run_specs(specs: Sequence[RunSpec], workspace: Path, **_given: Any) -> Iterator[RunResult]:
        folders.append(workspace)
        if len(folders) == 1:
            assert main(command) == 0  # another command while this one is at work
            assert [folder.is_dir() for folder in folders] == [True, False]
        yield RunResult(specs[0], ())

    monkeypatch.setattr("t5x_harness.runs.pool.run_specs", run_specs)
    monkeypatch.setattr("tempfile.tempdir", str(project / "temporary"))
    command = ["submit", "run.gin", "--vertex=emulated", "--dry-run"]
    assert main(command) == 0
    assert len(set(folders)) == 2
    assert list((project / "temporary").iterdir()) == []


def test_what_vertex_refuses_is_not_sent(dry: Any) -> None:
    said = dry(2, "--accelerator=machine-type=n1-standard-4,accelerator-type=TPU_V3,accelerator-count=8").err
    assert "run: Vertex AI refuses this job: --accelerator: job_spec.worker_pool_specs[0].machine_spec" in said


def test_what_could_use_up_too_much_is_not_sent(dry: Any) -> None:
    said = dry(1, "--accelerator=v3-32").err
    assert "more than the 16 that --tpu-max-chip-hours (pytest: --t5x-tpu-max-chip-hours) allows" in said
    dry(0, "--accelerator=v3-32", "--tpu-max-chip-hours=64")


def test_a_target_that_nobody_gave_is_asked_for_at_once(harness: Any) -> None:
    assert harness(2, "submit", "run.gin", "--project=p", "--location=us-central1").err == (
        "t5x-harness: no Vertex AI target: bucket, image are not set; set T5X_HARNESS_VERTEX_BUCKET, "
        "T5X_HARNESS_VERTEX_IMAGE, or write bucket, image into [tool.t5x_harness.vertex] of pyproject.toml; or give "
        "--bucket, --image; without a cloud: --vertex=emulated, or --dry-run, which shows the job with placeholders\n"
    )


def test_a_dry_run_without_a_target_has_placeholders(harness: Any) -> None:
    given = ["--accelerator=v3-8", "--project=p", "--location=us-central1", "--no-check"]
    shown = harness(0, "submit", "run.gin", "--dry-run", *given).out
    assert "staged in gs://your-bucket/t5x-harness/staged/" in shown
    assert (
        "  placeholders, to be given before it is sent: bucket (--bucket or T5X_HARNESS_VERTEX_BUCKET), image (--image "
        "or T5X_HARNESS_VERTEX_IMAGE)\n"
    ) in shown


def test_what_vertex_is_asked_for_is_in_the_spec(dry: Any) -> None:
    reservation = "projects/p/zones/us-central1-a/reservations/mine"
    options = [
        "--strategy=FLEX_START",
        "--max-wait-duration=6h",
        f"--reservation={reservation}",
        "--network=projects/12/global/networks/vpc",
        "--boot-disk-size-gb=200",
        "--label=team=nlp",
        "--env=A=b=c",
        "--disable-retries",
    ]
    (sent,) = json.loads(dry(0, "--json", *options).out)["jobs"]
    spec = sent["spec"]["jobSpec"]
    assert spec["scheduling"] == {
        "timeout": "14400s",
        "strategy": "FLEX_START",
        "maxWaitDuration": "21600s",
        "disableRetries": True,
    }
    (pool,) = spec["workerPoolSpecs"]
    assert pool["machineSpec"]["reservationAffinity"] == {
        "reservationAffinityType": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": [reservation],
    }
    assert pool["diskSpec"] == {"bootDiskType": "pd-ssd", "bootDiskSizeGb": 200}
    assert pool["containerSpec"]["env"][0] == {"name": "A", "value": "b=c"}
    assert spec["network"] == "projects/12/global/networks/vpc"
    assert sent["spec"]["labels"]["team"] == "nlp"


def test_the_project_says_where_jobs_go(project: Path, harness: Any) -> None:
    (project / "pyproject.toml").write_text(
        '[tool.t5x_harness.vertex]\nproject = "my-project"\nlocation = "europe-west4"\nbucket = "my-bucket"\n'
        'image = "i"\nservice_account = "me@my-project.iam.gserviceaccount.com"\n'
    )
    shown = harness(0, "submit", "run.gin", "--dry-run", "--no-check").out
    assert "in europe-west4 of my-project" in shown
    assert "staged in gs://my-bucket/t5x-harness/staged/" in shown
    assert "VTX11" in shown  # TPU jobs cannot have their own account


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--run_mode=compile"], "T5X's main takes train, eval, infer, precompile; for 'compile' use precompile"),
        (["--accelerator=v3-7"], "'v3-7' is not a TPU slice: nearest names: v3-8, v3-32, v3-64"),
        (["--accelerator=v3-8", "--slice=v3-8"], "--accelerator and --slice at once"),
        (["--gin.X=a"], "X = a: Gin cannot read this: not a Python literal; a string needs quotes of its own: X = 'a'"),
        (["--env=A"], "--env A: give NAME=VALUE"),
        (["--label==a"], "--label =a: give NAME=VALUE"),
        (["--env=A=1", "--env=A=1"], "--env A is given twice: leave one out"),
        (["--label=a=1", "--label=a=2"], "--label a is given twice: leave one out"),
        (["--project=My project"], "--project: 'My project' is not a project's id: give it as in the console, such as"),
        (["--strategy=spot"], "strategy 'spot': did you mean SPOT?"),
        (["--strategy=cheap"], "strategy 'cheap': there are STANDARD, SPOT, FLEX_START"),
        (["--max-wait-duration=1h"], "--max-wait-duration is how long a job with the strategy FLEX_START waits; the"),
        (["--reservation=mine"], "reservation 'mine': give any, none, or projects/PROJECT/zones/ZONE/reservations/NA"),
        (["--network=vpc"], "network 'vpc': give projects/NUMBER/global/networks/NAME"),
        (["--boot-disk-size-gb=big"], "argument --boot-disk-size-gb: must be a whole number from 1 up, not 'big'"),
        (["--format=sarif"], "argument --format: invalid choice: 'sarif'"),
        (["--no-wait"], "the emulated Google Cloud of --vertex=emulated ends with this command, and its jobs with it"),
        (["--attach=3"], "--attach follows a job that was sent: leave out FILE, --gin_file and --dry-run"),
        (["--gin.X='a'", "--gin_bindings=include 'no.gin'"], "no.gin: there is no such file; nothing is staged"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], message: str, dry: Any) -> None:
    assert message in dry(2, *arguments).err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("run.gin", "--vertex=real", "--dry-run", "--full-size"),
            "--full-size is for --vertex=emulated: Google's Vertex AI runs every job at its full size",
        ),
        (
            ("--vertex=emulated", "--attach=3"),
            "--attach finds no job in a new emulated Google Cloud: start one with t5x-harness serve",
        ),
    ],
)
def test_what_the_service_cannot_do_is_refused(arguments: tuple[str, ...], message: str, harness: Any) -> None:
    assert message in harness(2, "submit", *arguments).err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {"T5X_HARNESS_SHRINK": "1", "T5X_HARNESS_STANDINS": "here"}),
        (["--full-size"], {"T5X_HARNESS_SHRINK": "0", "T5X_HARNESS_STANDINS": "here"}),
        (["--standins=off"], {"T5X_HARNESS_SHRINK": "1", "T5X_HARNESS_STANDINS": ""}),
        (["--full-size", "--standins=off", "--env=A=1"], {"T5X_HARNESS_START": "", "A": "1"}),
        (["--env=T5X_HARNESS_SHRINK=0"], {"T5X_HARNESS_SHRINK": "0"}),
    ],
)
def test_jobs_of_the_emulated_vertex_ai_run_small_unless_told_not_to(
    arguments: list[str], expected: dict[str, str], project: Path
) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(["run.gin", "--vertex=emulated", *arguments])
    [job] = jobs_of(args, target_of(args, emulated=True))
    assert not set(expected) & set(job.env) - {"A", "T5X_HARNESS_SHRINK"}, "a dry run shows the job as Google gets it"
    sent = as_emulated(job, args).env
    found = {name: value.replace(str(project), "here") for name, value in sent.items()}
    assert found | expected == found


def test_runs_of_one_name_have_folders_of_their_own(project: Path, dry: Any) -> None:
    (project / "other").mkdir()
    (project / "other" / "run.gin").write_text((project / "run.gin").read_text())
    files = ("run.gin", "other/run.gin")
    first, second = json.loads(dry(0, "--json", files=files).out)["jobs"]
    assert first["name"] == second["name"] == "run"
    assert first["model_dir"] != second["model_dir"]
    said = dry(2, "--model_dir=gs://my-bucket/runs/1", files=files).err
    assert "run and run would both write into gs://my-bucket/runs/1: give each run its own" in said


def test_a_shell_of_a_private_google_sends_no_real_jobs(monkeypatch: pytest.MonkeyPatch, harness: Any) -> None:
    monkeypatch.setenv("T5X_HARNESS_GCS_ROOT", "/somewhere")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    said = harness(2, "submit", "run.gin", "--vertex=real").err
    assert "this shell's Google clients use an emulated Google Cloud" in said


MODES = [
    ("train", "pretrain", "MODEL_DIR"),
    ("eval", "eval", "EVAL_OUTPUT_DIR"),
    ("infer", "infer", "INFER_OUTPUT_DIR"),
]


@pytest.mark.parametrize(("mode", "config", "macro"), MODES)
def test_model_dir_is_the_folder_for_the_results_of_the_mode(
    project: Path, dry: Any, mode: str, config: str, macro: str
) -> None:
    text = f"include 't5x/configs/runs/{config}.gin'\nCHECKPOINT_PATH = 'gs://b/checkpoint_1'\n"
    (project / "read.gin").write_text(text)
    (job,) = json.loads(dry(0, "--model_dir=gs://my-bucket/out", "--json", files=("read.gin",)).out)["jobs"]
    assert job["args"][0] == f"--run_mode={mode}"
    assert job["model_dir"] == "gs://my-bucket/out"
    assert [arg for arg in job["args"] if "out" in arg] == [f'--gin.{macro}="gs://my-bucket/out"']
    said = dry(2, "--model_dir=/tmp/out", files=("read.gin",)).err
    assert f"{macro} = '/tmp/out': that is a folder of the job's container" in said
