"""A TPU VM's life with gcloud, if it is installed, and with requests to the API."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from asking import run_command
from cloud_tpu import ZONE

Gcloud = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def gcloud(shell_environment: Mapping[str, str], tmp_path: Path) -> Gcloud:
    if shutil.which("gcloud") is None:
        pytest.skip("gcloud is not installed")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = ("gcloud", "compute", "tpus", *words, "--zone=us-central2-b", "--quiet")
        return run_command(*command, env=shell_environment, cwd=tmp_path)

    return run


@pytest.mark.journey
def test_update_stop_and_start_by_gcloud(tpu: Any, gcloud: Gcloud) -> None:
    tpu.create("one")

    def shown(fields: str) -> str:
        return gcloud("tpu-vm", "describe", "one", f"--format=value({fields})").stdout.strip()

    assert gcloud("tpu-vm", "update", "one", "--description=mine", "--update-labels=team=nlp").returncode == 0
    assert shown("description,labels.team") == "mine\tnlp"
    for verb, state in (("stop", "STOPPED"), ("start", "READY")):
        assert gcloud("tpu-vm", verb, "one").returncode == 0
        assert shown("state") == state
    again = gcloud("tpu-vm", "start", "one")
    assert again.returncode == 1
    assert f"{ZONE}/nodes/one is READY, not STOPPED: it cannot be started" in again.stderr


def test_the_same_by_requests(tpu: Any) -> None:
    tpu.create("one")
    node = f"{ZONE}/nodes/one"
    updated = tpu("PATCH", f"{node}?updateMask=labels,description", {"labels": {"team": "nlp"}, "description": "mine"})
    assert updated["metadata"]["verb"] == "update"
    found = tpu("GET", node)
    assert (found["labels"], found["description"]) == ({"team": "nlp"}, "mine")
    refused = tpu("PATCH", f"{node}?updateMask=acceleratorType", {"acceleratorType": "v4-16"})
    assert refused["error"]["message"].startswith("acceleratorType cannot be changed; these can: dataDisks, ")
    for verb, state in (("stop", "STOPPED"), ("start", "READY")):
        assert tpu("POST", f"{node}:{verb}", {})["response"]["state"] == state
        assert tpu("GET", node)["state"] == state
    for path in (f"{node}:reimage", f"{node}:simulateMaintenanceEvent"):
        assert "t5x-harness does not emulate POST" in tpu("POST", path, {})["error"]["message"]


def test_a_state_that_is_lost_is_named() -> None:
    pytest.importorskip("fakeredis", reason="needs the extra vertex")
    from cloud_tpu import CloudTpu

    from t5x_harness.google.session import EmulatedCloud
    from t5x_harness.google.vertex.settings import VertexOptions
    from t5x_harness.google.vertex.state import open_store

    store = open_store("fakeredis:")
    with EmulatedCloud(vertex=VertexOptions(state=store.url)) as session:
        assert CloudTpu(session)("GET", f"{ZONE}/nodes") == {"nodes": []}
        store.close()
        error = CloudTpu(session)("GET", f"{ZONE}/nodes")["error"]
    assert (error["code"], error["status"]) == (503, "UNAVAILABLE")
    assert error["message"].startswith(f"the state at {store.url} is lost: ")
