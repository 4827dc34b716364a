"""`t5x-harness serve` for shells, `t5x-harness exec --google` for one command."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from t5x_harness.cli import main

COMMAND = (sys.executable, "-c", "import sys; from t5x_harness.cli import main; sys.exit(main())")
ASK = """
import http.client, json, os, ssl, sys, urllib.request
with urllib.request.urlopen("https://www.googleapis.com/oauth2/v4/token", data=b"grant_type=refresh_token") as answer:
    print(json.load(answer)["access_token"], os.environ.get("T5X_HARNESS_SLICE"), os.environ.get("JAX_NUM_CPU_DEVICES"))
"""


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(
        [*COMMAND, *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    ("options", "devices"), [((), "v3-8 8"), (("--slice=v3-32",), "v3-32 32"), (("--slice=none",), "None None")]
)
def test_exec_leads_a_command_there_with_and_without_devices(
    options: tuple[str, ...], devices: str, tmp_path: Path
) -> None:
    done = run("exec", "--google", *options, "--", sys.executable, "-c", ASK, TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, f"fake {devices}\n"), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_exec_without_google_leaves_clients_alone() -> None:
    done = run("exec", "--", "sh", "-c", "echo ${STORAGE_EMULATOR_HOST-unset} ${https_proxy-unset}")
    assert done.stdout == "unset unset\n"


def test_the_status_is_the_commands_and_what_it_was_refused_is_seen(tmp_path: Path) -> None:
    program = (
        "import socket, os; port = int(os.environ['https_proxy'].rpartition(':')[2]);"
        "s = socket.create_connection(('127.0.0.1', port));"
        "s.sendall(b'CONNECT example.org:443 HTTP/1.1\\r\\n\\r\\n'); s.recv(1); os._exit(7)"
    )
    done = run("exec", "--google", "--slice=none", "--", sys.executable, "-c", program)
    assert done.returncode == 7
    assert done.stderr.startswith("t5x-harness refuses example.org:443: only Google's API hosts are emulated here")
    killed = run("exec", "--google", "--slice=none", "--", "sh", "-c", "kill -TERM $$")
    assert killed.returncode == -signal.SIGTERM


def test_buckets_are_kept_where_they_are_wanted(tmp_path: Path) -> None:
    root = tmp_path / "new" / "cloud"
    assert run("exec", "--google-root", str(root), "--slice=none", "--", "true").returncode == 0
    assert root.is_dir()
    (tmp_path / "file").touch()
    refused = run("exec", "--google-root", str(tmp_path / "file"), "--slice=none", "--", "true")
    assert refused.returncode == 125
    assert refused.stderr == (
        f"{tmp_path}/file cannot keep buckets: File exists\nt5x-harness exec: the private Google could not start\n"
    )


def test_serve_is_for_shells_until_it_is_ended(tmp_path: Path) -> None:
    env_file = tmp_path / "google.env"
    arguments = ["serve", f"--env-file={env_file}", f"--root={tmp_path}/cloud"]
    with subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stderr
        assert serving.stderr.readline() == f"serving gs:// from {tmp_path}/cloud; Ctrl-C ends it\n"
        assert serving.stderr.readline() == f"in another shell: . {env_file}\n"
        script = '. "$1"; exec "$2" -c "$3"'
        done = subprocess.run(
            ["sh", "-c", script, "sh", env_file, sys.executable, ASK], capture_output=True, text=True, check=True
        )
        assert done.stdout == "fake None None\n"
        serving.send_signal(signal.SIGINT)
        assert serving.wait(60) == 0
        assert serving.stdout
        assert serving.stdout.read() == ""
    assert [path.name for path in tmp_path.iterdir()] == ["cloud"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_serve_prints_the_lines_and_clears_up(tmp_path: Path, number: signal.Signals) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [*COMMAND, "serve"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as serving:
        assert serving.stdout
        lines = [serving.stdout.readline()]
        while not lines[-1].startswith("export no_proxy="):
            lines.append(serving.stdout.readline())
        assert all(line.startswith("export ") for line in lines)
        (folder,) = tmp_path.iterdir()
        assert f"export SSL_CERT_FILE={folder}/ca.pem\n" in lines
        serving.send_signal(number)
        assert serving.wait(60) == 0
    assert list(tmp_path.iterdir()) == []


def test_an_env_file_that_another_server_wrote_is_left(tmp_path: Path) -> None:
    env_file = tmp_path / "google.env"
    with subprocess.Popen([*COMMAND, "serve", f"--env-file={env_file}"], stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stderr
        serving.stderr.readline()
        serving.stderr.readline()
        env_file.write_text("export OTHER=1\n")
        serving.terminate()
        assert serving.wait(60) == 0
    assert env_file.read_text() == "export OTHER=1\n"


def test_a_port_of_ones_own(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", f"--port={port}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"t5x-harness serve: port {port} cannot be had: Address already in use; name another one, or none for any\n"
    )
    # Free again; nobody else on this machine is likely to take it within a second.
    with subprocess.Popen(
        [*COMMAND, "serve", f"--port={port}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as serving:
        assert serving.stdout
        while not (line := serving.stdout.readline()).startswith("export STORAGE_EMULATOR_HOST="):
            assert line
        assert line == f"export STORAGE_EMULATOR_HOST=http://127.0.0.1:{port}\n"
        serving.terminate()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--root=plain"], "--root plain is no folder"),
        (["--env-file=none/google.env"], "--env-file none/google.env: there is no folder "),
        (["--port=0"], "a port is a number from 1 to 65535, not '0'"),
        (["--proxy-port=x"], "a port is a number from 1 to 65535, not 'x'"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "plain").touch()
    monkeypatch.chdir(tmp_path)
    assert main(["serve", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "exec"])
def test_help_teaches_by_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert "examples:" in out
    assert "gcloud" in out
