"""The examples of docs/tpu-vms.md run with gcloud if it is installed."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from page_blocks import bash, blocks, parsed

from t5x_harness.google.environment import with_programs
from t5x_harness.vertex.cloud import GoogleSession

CREATE = (
    "gcloud alpha compute tpus tpu-vm create old --zone us-central2-b --accelerator-type v4-8 --version v2-alpha-tpuv4"
)
ADDRESS = "gcloud compute tpus tpu-vm describe old --zone us-central2-b --format='value(networkEndpoints[0].ipAddress)'"
DELETE = "gcloud compute tpus tpu-vm delete old --zone us-central2-b --quiet"
PROJECT, VOCABULARY = "tests/public_configs/script", "sample_tasks/data/sentencepiece.model"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    if shutil.which("gcloud") is None:
        pytest.skip("gcloud is not installed")
    home = tmp_path_factory.mktemp("home")
    with GoogleSession() as session:
        environment = {**os.environ, **session.environment(), "HOME": str(home), "TF_CPP_MIN_LOG_LEVEL": "3"}
        yield with_programs(session.endpoints, environment)


def test_the_command_without_a_server_parses(page: str) -> None:
    (command,) = re.findall(r"`t5x-harness (exec [^`]+)`", page)
    assert parsed(f"t5x-harness {command}").command == ["--", "bash", "my-commands.sh"]


@pytest.mark.journey
def test_a_recipe_s_setup_ends_as_the_table_says(page: str, environment: Mapping[str, str], tmp_path: Path) -> None:
    """Runs all lines on one worker, one after another, as a user types them there."""
    rows = re.findall(r"^\| `(.+?)` \| (\d+)(?: or (\d+))? \| .+ \|$", page, re.MULTILINE)
    assert len(rows) > 10
    commands = [command.replace("\\|", "|") for command, *_ in rows]
    script = "".join(f"( {command} ) >&2\necho $?\n" for command in commands)
    bash(CREATE, tmp_path, environment)
    (address,) = bash(ADDRESS, tmp_path, environment).split()
    done = subprocess.run(["ssh", address, script], env=dict(environment), capture_output=True, text=True, check=True)
    statuses = done.stdout.split()
    wrong = [row for row, status in zip(rows, statuses, strict=True) if status not in row[1:]]
    assert not wrong, (statuses, done.stderr)
    for said in ("apt-get update does nothing", "reaches no network", "asks no index", "python3 -m t5x.train"):
        assert said in done.stderr
    bash(DELETE, tmp_path, environment)


@pytest.mark.journey
def test_the_recipe_trains_on_all_workers(
    page: str, environment: Mapping[str, str], repository: Path, tmp_path: Path
) -> None:
    recipe, *_ = blocks(page, "shell")
    project = Path(shutil.copytree(repository / PROJECT, tmp_path / "my-project"))
    (project / "fjord_tiny.sh").rename(project / "start.sh")
    shutil.copy(repository / VOCABULARY, tmp_path / "fjord.model")
    said = bash(recipe, tmp_path, environment)
    assert re.search(r"^my-tpu +us-central2-b +v4-16 +V4 +2x2x2 +default +READY$", said, re.MULTILINE)
    assert sorted(re.findall(r"^\d 2 8$", said, re.MULTILINE)) == ["0 2 8", "1 2 8"]
    written = re.findall(r"gs://fjord-lm/models/fjord_tiny/(\w+)/$", said, re.MULTILINE)
    assert "checkpoint_2" in written
    (logs,) = (tmp_path / "logs").rglob("events.out.tfevents.*")  # only that of the first worker
    assert logs.stat().st_size


@pytest.mark.journey
def test_four_workers_are_one_program(page: str, environment: Mapping[str, str], tmp_path: Path) -> None:
    _, four, _ = blocks(page, "shell")
    said = bash(f"gcloud config set compute/zone us-central2-b\n{four}", tmp_path, environment)
    assert sorted(re.findall(r"^\d 4 16$", said, re.MULTILINE)) == [f"{worker} 4 16" for worker in range(4)]


@pytest.mark.journey
def test_a_queued_resource_becomes_a_tpu_vm(page: str, environment: Mapping[str, str], tmp_path: Path) -> None:
    *_, queue = blocks(page, "shell")
    said = bash(queue, tmp_path, environment)
    assert re.search(r"^my-queue +us-west4-a +1 +v5litepod-8 +ACTIVE$", said, re.MULTILINE)
    assert "8 cpu" in said.splitlines()
