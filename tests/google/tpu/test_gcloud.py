"""A TPU VM's life cycle with gcloud, if it is installed, and with requests; and ``gcloud init`` with piped answers."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from asking import ask, run_command
from cloud_tpu import ZONE, CloudTpu

from t5x_harness.google.server.settings import SessionFolder
from t5x_harness.google.session import EmulatedCloud
from t5x_harness.google.tpu import remote_shell
from t5x_harness.google.vertex.settings import VertexOptions
from t5x_harness.google.vertex.state import open_store


@pytest.mark.journey
@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_update_stop_and_start_by_gcloud(tpu: Any, shell: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    tpu.create("one")

    def gcloud(*words: str) -> subprocess.CompletedProcess[str]:
        return shell("gcloud", "compute", "tpus", "tpu-vm", *words, "--zone=us-central2-b", "--quiet")

    def shown(fields: str) -> str:
        return gcloud("describe", "one", f"--format=value({fields})").stdout.strip()

    assert gcloud("update", "one", "--description=mine", "--update-labels=team=nlp").returncode == 0
    assert shown("description,labels.team") == "mine\tnlp"
    for verb, state in (("stop", "STOPPED"), ("start", "READY")):
        assert gcloud(verb, "one").returncode == 0
        assert shown("state") == state
    again = gcloud("start", "one")
    assert again.returncode == 1
    assert f"{ZONE}/nodes/one is READY, not STOPPED: it cannot be started" in again.stderr


def test_the_same_by_requests(tpu: Any) -> None:
    tpu.create("one")
    node = f"{ZONE}/nodes/one"
    updated = tpu("PATCH", f"{node}?updateMask=labels,description", {"labels": {"team": "nlp"}, "description": "mine"})
    assert updated["metadata"]["verb"] == "update"
    found = tpu("GET", node)
    assert (found["labels"], found["description"]) == ({"team": "nlp"}, "mine")
    for verb, state in (("stop", "STOPPED"), ("start", "READY")):
        assert tpu("POST", f"{node}:{verb}", {})["response"]["state"] == state
        assert tpu("GET", node)["state"] == state


def test_a_state_that_is_lost_is_named() -> None:
    pytest.importorskip("fakeredis", reason="needs the extra vertex")
    store = open_store("fakeredis:")
    with EmulatedCloud(vertex=VertexOptions(state=store.url)) as session:
        assert CloudTpu(session)("GET", f"{ZONE}/nodes") == {"nodes": []}
        store.close()
        error = CloudTpu(session)("GET", f"{ZONE}/nodes")["error"]
    assert (error["code"], error["status"]) == (503, "UNAVAILABLE")
    assert error["message"].startswith(f"the state at {store.url} is lost: ")


ANSWERS = "1\nmy-project\nY\nus-central2-b\n"  # this account, a project, and its zone, as on a new machine


@pytest.mark.journey
@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_answers_may_be_piped_into_it(
    fake_gcs_server: EmulatedCloud, shell_environment: Mapping[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("google.cloud.aiplatform_v1", reason="needs the extra vertex, for the list of projects")
    own = tmp_path / "gcloud"
    shutil.copytree(fake_gcs_server.environment()["CLOUDSDK_CONFIG"], own)
    environment = {**shell_environment, "CLOUDSDK_CONFIG": str(own)}

    def gcloud(*words: str, answers: str = "") -> subprocess.CompletedProcess[str]:
        return run_command("gcloud", *words, env=environment, typed=answers)

    done = gcloud("init", answers=ANSWERS)
    assert done.returncode == 0, done.stderr
    assert "Network diagnostic passed (1/1 checks passed)." in done.stderr
    assert "Your current project has been set to: [my-project]." in done.stderr
    assert "Your project default Compute Engine zone has been set to [us-central2-b]." in done.stderr
    assert not (Path(environment["HOME"]) / ".boto").exists()
    listed = gcloud("config", "list", "--format=value(core.project,compute.zone,core.disable_prompts)")
    assert listed.stdout.split() == ["my-project", "us-central2-b", "1"]
    set_again = gcloud("config", "set", "project", "another")
    assert (set_again.returncode, set_again.stderr) == (0, "Updated property [core/project].\n")
    assert "another" in gcloud("projects", "describe", "another", "--format=value(projectId)").stdout


def test_the_session_s_gcloud_changes_init_alone(fake_gcs_server: EmulatedCloud, tmp_path: Path) -> None:
    wrapper = SessionFolder(fake_gcs_server.endpoints.folder).programs / "gcloud"
    if not wrapper.exists():
        pytest.skip("gcloud is not installed")
    real = tmp_path / "gcloud"
    real.write_text('#!/bin/sh\necho "${CLOUDSDK_CORE_DISABLE_PROMPTS-unset} $HOME $*"\n')
    real.chmod(0o755)
    environment = {
        **os.environ,
        **fake_gcs_server.environment(),
        "PATH": f"{wrapper.parent}:{tmp_path}:{os.environ['PATH']}",
        "HOME": "/home/me",
    }
    for words, expected in (
        ("compute ssh init", "1 /home/me compute ssh init\n"),
        ("-q init --x", f"unset {fake_gcs_server.endpoints.folder} -q init --x\n"),
    ):
        assert run_command(str(wrapper), *words.split(), env=environment).stdout == expected


def test_sessions_inside_each_other_find_the_real_program(tmp_path: Path) -> None:
    for name in ("inner", "outer"):
        (tmp_path / name).mkdir()
        words = [sys.executable, "-I", remote_shell.__file__, "gcloud", str(tmp_path / name), "http://x", "/token"]
        (tmp_path / name / "gcloud").write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "gcloud").write_text('#!/bin/sh\necho real "$@"\n')
    path = [str(tmp_path / name) for name in ("inner", "outer", "real")]
    for folder in path:
        Path(folder, "gcloud").chmod(0o755)
    assert run_command(f"{path[0]}/gcloud", "info", env={"PATH": os.pathsep.join(path)}).stdout == "real info\n"


def test_zones_and_regions(fake_gcs_server: EmulatedCloud) -> None:
    def get(path: str) -> Any:
        return ask(fake_gcs_server, "compute.googleapis.com", f"/compute/v1/projects/p{path}")

    zones, regions = ([item["name"] for item in get(path)["items"]] for path in ("/zones", "/regions"))
    assert "us-central2-b" in zones
    assert regions == list(dict.fromkeys(zone.rpartition("-")[0] for zone in zones))
    assert get("/zones/us-central2-b")["region"].endswith("/projects/p/regions/us-central2")
    assert get("/regions/mars")["error"]["message"].startswith(
        "The resource 'projects/p/regions/mars' was not found (t5x-harness has us-central1, us-central2, "
    )
    assert "t5x-harness does not emulate GET" in get("/global/images")["error"]["message"]
