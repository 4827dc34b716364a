"""TPU VMs in a state that survives their server, and that two servers share."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import run_command
from cloud_tpu import ZONE, CloudTpu, has_ended

from t5x_harness.google.environment import with_programs
from t5x_harness.google.session import EmulatedCloud
from t5x_harness.google.vertex.settings import VertexOptions
from t5x_harness.google.vertex.state import open_store
from t5x_harness.google.vertex_admin import FakeVertex


@pytest.fixture
def state() -> Iterator[str]:
    pytest.importorskip("fakeredis", reason="needs the extra vertex")
    store = open_store("fakeredis:")
    yield store.url
    store.close()


def on_worker(session: EmulatedCloud, address: str, command: str) -> str:
    environment = with_programs(session.endpoints, {**os.environ, **session.environment()})
    done = run_command("ssh", address, command, env=environment)
    return done.stdout if done.returncode == 0 else done.stderr


def rewrite(url: str, change: Callable[[Any], None]) -> None:
    """Changes the only TPU VM in a state directly, without a server."""
    store = open_store(url)

    def changed(value: bytes) -> bytes:
        kept = json.loads(value)
        change(*kept["nodes"].values())
        return json.dumps(kept).encode()

    store.update("tpu", changed)
    store.close()


@pytest.mark.parametrize("what", ["another user's", "writable by all", "by a link", "of no uid", "above"])
def test_nothing_is_run_from_or_removed_in_a_folder_that_the_state_names(state: str, tmp_path: Path, what: str) -> None:
    """The folder has an attacker's python. Commands run in a home of this server instead, and that home is deleted."""
    theirs = tmp_path / ("0a1b2c3d" if what != "of no uid" else "theirs")
    home = theirs / "0" / "home"
    (home / ".python" / "bin").mkdir(parents=True)
    (theirs / ".t5x-harness-tpu-vm").mkdir()
    python = home / ".python" / "bin" / "python3"
    python.write_text("#!/bin/sh\necho theirs\n")
    python.chmod(0o755)
    named = theirs
    if what == "another user's":
        if os.geteuid():
            pytest.skip("the other tests are those of an ordinary user")
        os.chown(theirs, 65534, 65534)
    elif what == "writable by all":
        theirs.chmod(0o777)
    elif what == "by a link":
        (tmp_path / "link").mkdir()
        named = tmp_path / "link" / theirs.name
        named.symlink_to(theirs)
    elif what == "above":
        named = theirs / "x" / ".."
    with EmulatedCloud(vertex=VertexOptions(state=state, pending_seconds=0)) as session:
        address = CloudTpu(session).create("t")["networkEndpoints"][0]["ipAddress"]
        rewrite(state, lambda node: node.update(_folder=str(named)))
        assert on_worker(session, address, "python3 -c 'print(1)'") == "1\n"
        assert CloudTpu(session)("DELETE", f"{ZONE}/nodes/t")["done"]
        assert session.endpoints.folder.is_dir()
        assert on_worker(session, address, "true").startswith("t5x-harness: ")
    assert python.exists()


def test_workers_meet_on_this_machine_alone(state: str) -> None:
    with EmulatedCloud(vertex=VertexOptions(state=state, pending_seconds=0)) as session:
        address = CloudTpu(session).create("t", "v4-16")["networkEndpoints"][0]["ipAddress"]
        rewrite(state, lambda node: node.update(_coordinator="192.0.2.1:80"))
        said = on_worker(session, address, "true")
    assert (
        said == f"t5x-harness: {address}: the state has '192.0.2.1:80' as the address of the workers, "
        "which no server writes\n"
    )


def test_a_tpu_vm_is_there_again_after_its_server_was_killed(state: str, tmp_path: Path) -> None:
    options = VertexOptions(state=state, pending_seconds=0)

    def ask(session: EmulatedCloud, method: str, path: str) -> Any:
        return CloudTpu(session)(method, f"{ZONE}/{path}")

    with EmulatedCloud(vertex=options) as other:
        with EmulatedCloud(tmp_path / "root", vertex=options) as first:
            address = CloudTpu(first).create("t", labels={"team": "nlp"})["networkEndpoints"][0]["ipAddress"]
            gone = CloudTpu(other).create("gone")["networkEndpoints"][0]["ipAddress"]
            background = "nohup sleep 600 > /dev/null 2>&1 & echo $!"
            pid = on_worker(first, address, f"echo mine > file; {background}").strip()
            assert on_worker(other, address, "cat file") == "mine\n"  # the home is the same for both servers
            os.kill(first.endpoints.pid, signal.SIGKILL)
            while not first.how_it_ended() and not has_ended(Path(f"/proc/{first.endpoints.pid}")):
                time.sleep(0.02)
        assert not has_ended(Path(f"/proc/{pid}"))
        with EmulatedCloud(tmp_path / "root", vertex=options) as again:
            assert has_ended(Path(f"/proc/{pid}"))
            node = ask(again, "GET", "nodes/t")
            assert (node["state"], node["labels"]) == ("READY", {"team": "nlp"})
            assert on_worker(again, address, "cat file") == "mine\n"
            assert ask(other, "DELETE", "nodes/t")["done"]
            assert "no TPU VM of this session has a worker there any more" in on_worker(again, address, "true")
            assert "no TPU VM" not in on_worker(again, gone, "true")
            FakeVertex(other).reset()
            assert ask(again, "GET", "nodes") == {"nodes": []}
        assert list((tmp_path / "root" / "tpu").iterdir()) == []
