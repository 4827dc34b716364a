"""A server reports when it is ready, ends with its owner, and leaves nothing behind."""

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from t5x_harness.google.server.launch import launch
from t5x_harness.google.server.settings import Endpoints, ServerSettings
from t5x_harness.google.session import EmulatedCloud, ServerError

# A process with a session, which reports the addresses of the server and then acts as its argument tells it to.
OWNER = """
import os, sys
from t5x_harness.google.session import EmulatedCloud
session = EmulatedCloud(app=sys.argv[1])
session.start()
print(session.endpoints.to_json(), flush=True)
exec(sys.argv[2])
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files, which has to be empty after the session."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@contextlib.contextmanager
def owner(app: str, then: str) -> Iterator[tuple[subprocess.Popen[str], Endpoints]]:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, app, then], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        try:
            yield process, Endpoints.from_json(process.stdout.readline())
        finally:
            process.kill()


def assert_gone(endpoints: Endpoints, temporary: Path) -> None:
    """Waits until the process has ended, and checks that it has left nothing behind."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(endpoints.pid)
        ended = select.select([descriptor], [], [], 60)[0]
        os.close(descriptor)
        assert ended, "the server lives on"
    assert list(temporary.iterdir()) == []
    for port in (endpoints.http, endpoints.tls, endpoints.proxy, endpoints.grpc):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def ask(endpoints: Endpoints, path: str = "/x") -> dict[str, object]:
    connection = http.client.HTTPConnection("127.0.0.1", endpoints.http, timeout=60)
    connection.request("GET", path)
    answer: dict[str, object] = json.load(connection.getresponse())
    connection.close()
    return answer


def test_a_session_is_ready_when_it_says_so_and_leaves_nothing(echo: str, temporary: Path) -> None:
    with EmulatedCloud(app=echo) as session:
        ends = session.endpoints
        for port in (ends.http, ends.tls, ends.proxy, ends.grpc):
            socket.create_connection(("127.0.0.1", port)).close()
        assert ask(ends)["path"] == "/x"
        variables = session.environment()
        for name in (
            "GOOGLE_APPLICATION_CREDENTIALS",
            "SSL_CERT_FILE",
            "BOTO_CONFIG",
            "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE",
        ):
            assert Path(variables[name]).is_file()
        assert list(Path(variables["SSL_CERT_DIR"]).iterdir()) == []
        configuration = Path(variables["CLOUDSDK_CONFIG"]) / "configurations" / "config_default"
        assert configuration.read_text().endswith("\n[core]\nproject = t5x-harness\n")
        assert ends.root.parent == ends.folder
    assert_gone(ends, temporary)
    with pytest.raises(ServerError, match="is not running: use it in a with block"):
        _ = session.endpoints
    session.close()


def test_two_sessions_at_once_know_nothing_of_each_other(echo: str, tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    with EmulatedCloud(roots[0], app=echo) as a, EmulatedCloud(roots[1], app=echo) as b:
        ports = [port for e in (a.endpoints, b.endpoints) for port in (e.http, e.tls, e.proxy, e.grpc)]
        assert len(set(ports)) == 8
        with socket.create_connection(("127.0.0.1", a.endpoints.proxy)) as connection:
            connection.sendall(b"CONNECT example.org:443 HTTP/1.1\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 403")
        assert (dict(a.refused()), dict(b.refused())) == ({"example.org:443": 1}, {})
        assert [a.endpoints.root, b.endpoints.root] == roots
        assert_keys_are_for_this_user_alone(a, b)
        # The application is created and closed in the server's process.
        pids = [str(a.endpoints.pid), str(b.endpoints.pid)]
        assert [(root / "opened").read_text() for root in roots] == pids
        assert not any((root / "closed").exists() for root in roots)
    assert [(root / "closed").read_text() for root in roots] == pids


def assert_keys_are_for_this_user_alone(*sessions: EmulatedCloud) -> None:
    """Only this user can read the keys, and no two sessions have the same."""
    keys = []
    for session in sessions:
        folder = session.endpoints.folder
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for name in ("credentials.json", "server.pem", "token"):
            assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
        account = json.loads((folder / "credentials.json").read_text())
        assert account["token_uri"] == f"{session.endpoints.url}/_t5x_harness/token"
        keys += [account["private_key"], (folder / "ca.pem").read_text()]
    assert len(set(keys)) == 2 * len(sessions)


@pytest.mark.parametrize(
    ("then", "number"),
    [
        ("import time; time.sleep(600)", signal.SIGKILL),
        ("import time; time.sleep(600)", signal.SIGTERM),
        ("pass", None),  # it forgets the server
        ("os.execvp('sh', ['sh', '-c', 'read line; exit 0'])", signal.SIGTERM),  # another program replaces it
    ],
)
def test_it_ends_with_its_owner(echo: str, temporary: Path, then: str, number: signal.Signals | None) -> None:
    with owner(echo, then) as (process, ends):
        if number is not None:
            assert ask(ends)["path"] == "/x"
            process.send_signal(number)
        process.wait()
        assert_gone(ends, temporary)


def test_it_is_nobodys_child(echo: str) -> None:
    """Programs that wait for all of their children, as launchers do, must not wait for a server."""
    then = "\ntry: os.wait()\nexcept ChildProcessError: print('no children', flush=True)\n"
    with owner(echo, then) as (process, _):
        assert process.stdout
        assert process.stdout.readline() == "no children\n"


def test_it_outlives_the_thread_that_started_it(echo: str) -> None:
    session = EmulatedCloud(app=echo)
    thread = threading.Thread(target=session.start)
    thread.start()
    thread.join()
    try:
        assert ask(session.endpoints)["path"] == "/x"
    finally:
        session.close()


def test_a_fork_of_the_owner_does_not_end_it(echo: str) -> None:
    with EmulatedCloud(app=echo) as session:
        child = os.fork()
        if child == 0:
            session.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert ask(session.endpoints)["path"] == "/x"


def test_what_a_killed_server_leaves_is_cleared_up(echo: str, temporary: Path) -> None:
    with EmulatedCloud(app=echo) as session:
        ends = session.endpoints
        os.kill(ends.pid, signal.SIGKILL)
        assert select.select([session], [], [], 60)[0]
        with pytest.raises(ConnectionError, match=rf"Google Cloud, process {ends.pid}, was killed \(out of memory\?\)"):
            _ = session.endpoints
    assert_gone(ends, temporary)


def test_what_a_killed_server_without_an_owner_leaves_is_removed_by_the_next_one(echo: str, temporary: Path) -> None:
    with (temporary.parent / "output").open("w+b") as output:
        killed = launch(ServerSettings(app=echo), output)
        with EmulatedCloud(app=echo) as session:
            lives = session.endpoints.folder
            os.kill(killed.endpoints.pid, signal.SIGKILL)
            assert select.select([killed], [], [], 60)[0]
            foreign = temporary / "t5x-harness-google-of-another-kind"
            foreign.mkdir()
            with EmulatedCloud(app=echo) as other:
                assert not killed.endpoints.folder.exists()
                assert sorted(temporary.iterdir()) == sorted([lives, foreign, other.endpoints.folder])
        foreign.rmdir()
        killed.detach()


def test_a_server_that_is_stuck_is_killed(echo: str, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("t5x_harness.google.server.launch._END_SECONDS", 0.5)
    with EmulatedCloud(app=echo) as session:
        ends = session.endpoints
        os.kill(ends.pid, signal.SIGSTOP)
    assert_gone(ends, temporary)


def test_answers_under_way_do_not_keep_it(echo: str, temporary: Path) -> None:
    with EmulatedCloud(app=echo) as session, contextlib.ExitStack() as stack:
        ends = session.endpoints
        for request in (
            b"GET /zeros/1073741824 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"PUT / HTTP/1.1\r\nContent-Length: 9\r\nHost: localhost\r\n\r\n",
        ):
            stack.enter_context(socket.create_connection(("127.0.0.1", ends.http))).sendall(request)
        proxied = stack.enter_context(socket.create_connection(("127.0.0.1", ends.proxy)))
        proxied.sendall(b"CONNECT storage.googleapis.com:443 HTTP/1.1\r\n\r\n")
        assert proxied.recv(4096).startswith(b"HTTP/1.1 200")
        session.close()
        assert_gone(ends, temporary)


def test_it_says_what_it_refuses_where_it_is_heard(echo: str, tmp_path: Path) -> None:
    with (tmp_path / "output").open("w+b") as output:
        launched = launch(ServerSettings(owner=os.getpid(), app=echo), output)
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", launched.endpoints.proxy)) as connection:
                connection.sendall(b"CONNECT example.org:443 HTTP/1.1\r\n\r\n")
                connection.recv(4096)
        launched.end()
        output.seek(0)
        assert output.read().decode() == (
            "t5x-harness refuses example.org:443: only Google's API hosts are emulated here (*.googleapis.com), "
            "and nothing passes through to the network\n"
        )


def test_why_it_cannot_start_is_said(echo: str, tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServerError, match=r"could not start: .*/file/below cannot keep buckets: Not a directory"):
        EmulatedCloud(tmp_path / "file" / "below", app=echo).start()
    with pytest.raises(ServerError, match=r"could not start: .*/root is being served by process 1"):
        EmulatedCloud(app="echo_app:refuse").start()
    deadline = time.monotonic() + 60
    while list(temporary.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(temporary.iterdir()) == []


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("httptools", "grpc") else find(name))
    with pytest.raises(ServerError) as caught:
        EmulatedCloud().start()
    assert str(caught.value) == (
        "the emulated Google Cloud needs httptools, grpcio, not installed here: "
        "python -m pip install 't5x-harness[google]'"
    )


def test_start_loads_neither_grpc_nor_anything_of_training() -> None:
    program = (
        "import sys; import t5x_harness.google.server.process;"
        "print({'grpc', 'jax', 'numpy', 'tensorflow', 'pytest', 'google.auth'} & set(sys.modules) or 'nothing')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "nothing\n"
