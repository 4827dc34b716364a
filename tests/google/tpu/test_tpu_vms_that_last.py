"""TPU VMs in a state that outlives their server, and that two servers have."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cloud_tpu import ZONE, CloudTpu

from t5x_harness.google.environment import with_programs
from t5x_harness.google.session import GoogleSession
from t5x_harness.google.vertex.settings import VertexOptions
from t5x_harness.google.vertex.state import open_store
from t5x_harness.google.vertex_admin import FakeVertex


@pytest.fixture
def state() -> Iterator[str]:
    pytest.importorskip("fakeredis", reason="needs the extra vertex")
    store = open_store("fakeredis:")
    yield store.url
    store.close()


def on_worker(session: GoogleSession, address: str, command: str) -> str:
    environment = with_programs(session.endpoints, {**os.environ, **session.environment()})
    done = subprocess.run(
        ["ssh", address, command],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout if done.returncode == 0 else done.stderr


def is_running(pid: str) -> bool:
    try:
        return not Path(f"/proc/{pid.strip()}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return False


def test_a_tpu_vm_is_there_again_after_its_server_was_killed(state: str, tmp_path: Path) -> None:
    options = VertexOptions(state=state, pending_seconds=0)

    def ask(session: GoogleSession, method: str, path: str) -> Any:
        return CloudTpu(session)(method, f"{ZONE}/{path}")

    with GoogleSession(vertex=options) as other:
        with GoogleSession(tmp_path / "root", vertex=options) as first:
            address = CloudTpu(first).create("t", labels={"team": "nlp"})["networkEndpoints"][0]["ipAddress"]
            gone = CloudTpu(other).create("gone")["networkEndpoints"][0]["ipAddress"]
            background = "nohup sleep 600 > /dev/null 2>&1 & echo $!"
            process = on_worker(first, address, f"echo mine > file; {background}")
            assert on_worker(other, address, "cat file") == "mine\n"  # a home is one, whichever server is asked
            os.kill(first.endpoints.pid, signal.SIGKILL)
            while is_running(str(first.endpoints.pid) if not first.how_it_ended() else "0"):
                time.sleep(0.02)
        assert is_running(process)
        with GoogleSession(tmp_path / "root", vertex=options) as again:
            assert not is_running(process)
            node = ask(again, "GET", "nodes/t")
            assert (node["state"], node["labels"]) == ("READY", {"team": "nlp"})
            assert on_worker(again, address, "cat file") == "mine\n"
            assert ask(other, "DELETE", "nodes/t")["done"]
            assert "no TPU VM of this session has a worker there any more" in on_worker(again, address, "true")
            assert "no TPU VM" not in on_worker(again, gone, "true")
            FakeVertex(other).reset()
            assert ask(again, "GET", "nodes") == {"nodes": []}
        assert list((tmp_path / "root" / "tpu").iterdir()) == []
