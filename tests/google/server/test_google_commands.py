"""`t5x-harness serve` for shells, and `t5x-harness exec --google` for a single command."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from t5x_harness.commands.main import main
from t5x_harness.google.gcs_mount.mount import MountMode
from t5x_harness.google.gcs_mount.probing import refusal

Served = tuple[subprocess.Popen[str], IO[str], IO[str]]
COMMAND = (sys.executable, "-c", "import sys; from t5x_harness.commands.main import main; sys.exit(main())")
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


@contextlib.contextmanager
def serving(*arguments: str, before: Sequence[str] = (), **variables: str) -> Iterator[Served]:
    """Starts ``t5x-harness serve``; yields the process and its two outputs, and ends it if the test has not."""
    with subprocess.Popen(
        [*before, *COMMAND, "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    ) as process:
        assert process.stdout
        assert process.stderr
        yield process, process.stdout, process.stderr
        process.terminate()


def test_exec_leads_a_command_there_with_devices(tmp_path: Path) -> None:
    done = run("exec", "--google", "--", sys.executable, "-c", ASK, TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "fake v3-8 8\n"), done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("options", "devices"), [("--slice=v3-32", "v3-32 32"), ("--slice=none", "unset unset")])
def test_exec_without_google_leaves_clients_alone_with_other_devices_or_none(options: str, devices: str) -> None:
    names = "STORAGE_EMULATOR_HOST https_proxy T5X_HARNESS_SLICE JAX_NUM_CPU_DEVICES"
    done = run("exec", options, "--", "sh", "-c", "echo " + " ".join(f"${{{name}-unset}}" for name in names.split()))
    assert done.stdout == f"unset unset {devices}\n"


def test_the_status_is_the_commands_and_what_it_was_refused_is_seen() -> None:
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
    assert refused.returncode == 2
    assert refused.stderr == f"t5x-harness: --google-root {tmp_path}/file is not a folder\n"


LIST = """
import json, os, urllib.request
url = os.environ["STORAGE_EMULATOR_HOST"] + "/storage/v1/b/my-bucket/o"
with urllib.request.urlopen(url) as answer:
    print([item["name"] for item in json.load(answer)["items"]])
"""


@pytest.fixture
def cloud(tmp_path: Path) -> Path:
    """A root with one bucket, for --google-root."""
    (tmp_path / "cloud" / "buckets" / "my-bucket").mkdir(parents=True)
    return tmp_path / "cloud"


ASK_THRICE = """
import os, urllib.error, urllib.request
for _ in range(3):
    try:
        print(urllib.request.urlopen(os.environ["STORAGE_EMULATOR_HOST"] + "/storage/v1/b/new-bucket/o").status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""


def test_a_missing_bucket_is_said_on_the_terminal_and_made_if_that_is_wanted() -> None:
    ask = (sys.executable, "-c", ASK_THRICE)
    done = run("exec", "--google", "--slice=none", "--", *ask)
    assert done.stdout.split() == ["404"] * 3
    assert done.stderr.startswith("t5x-harness: there is no bucket 'new-bucket', which was asked for 3 times; ")
    assert len(done.stderr.splitlines()) == 1
    made = run("exec", "--create-buckets", "--slice=none", "--", *ask)
    assert (made.stdout.split(), made.stderr) == (["200"] * 3, "")


@pytest.mark.parametrize("mode", list(MountMode))
def test_exec_shows_the_buckets_at_gcs(mode: MountMode, cloud: Path) -> None:
    if refused := refusal(mode):
        pytest.skip(f"/gcs in mode {mode} cannot be mounted here: {refused}")
    script = 'echo text > /gcs/my-bucket/object && "$0" -c "$1" && mv /gcs/my-bucket /gcs/your-bucket'
    options = [f"--google-root={cloud}", f"--gcs-paths={mode}", "--slice=none"]
    done = run("exec", *options, "--", "sh", "-c", script, sys.executable, LIST)
    assert done.stdout == "['object']\n", done.stderr
    assert (done.returncode == 0) is (mode is MountMode.FOLDER)


def test_exec_shows_a_folder_unless_told_otherwise_and_nothing_when_told(cloud: Path) -> None:
    if refused := refusal(MountMode.FOLDER):
        pytest.skip(f"/gcs cannot be mounted here: {refused}")
    options = [f"--google-root={cloud}", "--slice=none"]
    assert run("exec", *options, "--", "ls", "/gcs").stdout == "my-bucket\n"
    seen = run(
        "exec", *options, "--gcs-paths=off", "--", "sh", "-c", "ls -d /gcs/my-bucket; echo [$T5X_HARNESS_GCS_ROOT]"
    )
    assert (seen.stdout, seen.returncode) == ("[]\n", 0)


def test_an_exec_inside_sees_what_the_one_around_it_does(cloud: Path) -> None:
    inner = [*COMMAND, "exec", "--slice=none", "--", "ls", "/gcs"]
    done = run("exec", f"--google-root={cloud}", "--slice=none", "--", *inner)
    assert (done.stdout, done.stderr) == ("my-bucket\n", "")


REFUSING = """
import sys
from t5x_harness.google.gcs_mount import probing
probing.refusal = lambda mode: "mounting /: Operation not permitted"
from t5x_harness.commands.main import main
sys.exit(main())
"""


def test_where_nothing_can_be_mounted_exec_rewrites_and_says_so(cloud: Path) -> None:
    (cloud / "buckets" / "my-bucket" / "object").write_text("text")
    program = "import sys; print(open('/gcs/my-' + 'bucket/object').read(), sys.argv[1])"
    command = [sys.executable, "-c", program, "/gcs/my-bucket"]
    words = [sys.executable, "-c", REFUSING, "exec", f"--google-root={cloud}", "--slice=none"]
    done = subprocess.run([*words, "--", *command], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == f"text {cloud}/buckets/my-bucket\n", done.stderr
    assert done.stderr == (
        "t5x-harness exec: /gcs cannot be mounted here (mounting /: Operation not permitted): it is rewritten in the "
        "command's words and variables, and patched in Python; see t5x-harness doctor\n"
    )
    done = subprocess.run([*words, "--gcs-paths=fuse", "--", "true"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        125,
        "t5x-harness exec: /gcs cannot be as Cloud Storage FUSE here: mounting /: Operation not permitted; "
        "see t5x-harness doctor\n",
    )


def test_paths_without_buckets_are_wrong_usage() -> None:
    done = run("exec", "--gcs-paths=folder", "--", "true", T5X_HARNESS_GCS_ROOT="")
    assert (done.returncode, done.stderr) == (
        2,
        "t5x-harness exec: --gcs-paths=folder: there are no buckets to show; add --google or --google-root DIR, or "
        "read the lines of t5x-harness serve into this shell\n",
    )


REACH = """
import socket
try:
    socket.create_connection(("192.0.2.1", 9), 0.01)
except OSError as error:
    print(error.strerror)
"""


def test_exec_can_forbid_what_is_beyond_this_machine() -> None:
    done = run("exec", "--network=forbid", "--slice=none", "--", sys.executable, "-c", REACH)
    if done.returncode == 125:
        pytest.skip(done.stderr.strip())
    if done.stdout != "Permission denied\n" and not done.stderr:
        pytest.skip("the memory of a process cannot be read here")
    assert done.stdout == "Permission denied\n"
    assert done.stderr.startswith("t5x-harness: refused python")
    assert " 192.0.2.1, port 9: runs reach loopback only; allow it with " in done.stderr
    done = run("exec", "--google", "--network=forbid", "--slice=none", "--", sys.executable, "-c", ASK)
    assert (done.stdout, done.stderr) == ("fake None None\n", "")


def test_proxies_elsewhere_are_taken_from_a_command_that_is_kept_here() -> None:
    script = "echo $T5X_HARNESS_NETWORK ${https_proxy-unset} ${grpc_proxy-unset}"
    proxies = {"https_proxy": "http://127.0.0.1:3128", "grpc_proxy": "192.0.2.7:3128"}
    done = run("exec", "--network=forbid", "--slice=none", "--", "sh", "-c", script, **proxies)
    if done.returncode == 125:
        pytest.skip(done.stderr.strip())
    assert done.stdout == "forbid http://127.0.0.1:3128 unset\n"


def test_serve_is_for_shells_until_it_is_ended(tmp_path: Path) -> None:
    env_file = tmp_path / "google.env"
    with serving(f"--env-file={env_file}", f"--root={tmp_path}/cloud") as (server, out, err):
        assert err.readline() == f"serving gs:// from {tmp_path}/cloud; Ctrl-C ends it\n"
        assert err.readline() == f"in another shell: . {env_file}\n"
        assert err.readline() == ("for paths below /gcs, there: t5x-harness exec --slice=none -- COMMAND\n")
        script = '. "$1"; shift; exec "$@"'
        shell = ["sh", "-c", script, "sh", str(env_file)]
        done = subprocess.run([*shell, sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
        assert done.stdout == "fake None None\n"
        (tmp_path / "cloud" / "buckets" / "my-bucket").mkdir()
        write = ["exec", "--slice=none", "--", "sh", "-c", "echo text > /gcs/my-bucket/object"]
        done = subprocess.run([*shell, *COMMAND, *write], capture_output=True, text=True, check=True)
        assert (tmp_path / "cloud" / "buckets" / "my-bucket" / "object").read_text() == "text\n"
        server.send_signal(signal.SIGINT)
        assert (server.wait(60), out.read()) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["cloud"]


# Starts a command in the way in which a script's shell starts one with an &.
IN_THE_BACKGROUND = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]


@pytest.mark.parametrize("name", ["a\nb", "a%(b)s"])
def test_a_temporary_folder_that_configurations_cannot_name_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    done = run("serve", TMPDIR=str(folder))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"t5x-harness serve: the temporary folder {str(folder)!r} has a character in its name that configuration files "
        "of gsutil and gcloud cannot have: set TMPDIR to another one\n"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_serve_prints_the_lines_and_clears_up(tmp_path: Path, number: signal.Signals) -> None:
    with serving(before=IN_THE_BACKGROUND, TMPDIR=str(tmp_path)) as (server, out, _):
        lines = [out.readline()]
        while not lines[-1].startswith("export no_proxy="):
            lines.append(out.readline())
        assert all(line.startswith("export ") for line in lines)
        (folder,) = tmp_path.iterdir()
        assert f"export SSL_CERT_FILE={folder}/ca.pem\n" in lines
        server.send_signal(number)
        assert server.wait(60) == 0
    assert list(tmp_path.iterdir()) == []


def test_an_env_file_that_another_server_wrote_is_left(tmp_path: Path) -> None:
    env_file = tmp_path / "google.env"
    with serving(f"--env-file={env_file}") as (server, _, err):
        err.readline()
        err.readline()
        env_file.write_text("export OTHER=1\n")
        server.terminate()
        assert server.wait(60) == 0
    assert env_file.read_text() == "export OTHER=1\n"


def test_a_port_of_ones_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", f"--port={port}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"t5x-harness serve: port {port} is not available: Address already in use; name another one, or none for any\n"
    )
    # Free again: no other program is likely to take it within a second.
    with serving(f"--port={port}") as (_, out, _):
        while not (line := out.readline()).startswith("export STORAGE_EMULATOR_HOST="):
            assert line
        assert line == f"export STORAGE_EMULATOR_HOST=http://127.0.0.1:{port}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--root=plain"], "--root plain is not a folder"),
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
