"""Clients under ``t5x-harness exec --google`` and ``serve`` get Google's own errors."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from asking import run_command

pytest.importorskip("google.cloud.storage", reason="google-cloud-storage is not installed")

CLIENT = """
import json
from google.api_core import exceptions
from google.cloud import storage

client = storage.Client()
told = []
for ask in (
    lambda: client.get_bucket("none-such"),
    lambda: client.bucket("none-such").blob("x").upload_from_string(b"x"),
    lambda: list(client.list_blobs("none-such")),
    lambda: client.create_bucket("UPPER"),
    lambda: client.create_bucket("mine").blob("none").download_as_bytes(),
    lambda: client.create_bucket("mine"),
    lambda: client.bucket("mine").blob("a").get_iam_policy(),
):
    try:
        ask()
    except exceptions.GoogleAPICallError as error:
        told.append([type(error).__name__, [each["reason"] for each in error.errors]])
print(json.dumps(told))
"""
TOLD = (
    '[["NotFound", ["notFound"]], ["NotFound", []], ["NotFound", ["notFound"]], ["BadRequest", ["invalid"]], '
    '["NotFound", []], ["Conflict", ["conflict"]], ["Forbidden", ["notImplemented"]]]\n'
)


def test_under_exec(tmp_path: Path) -> None:
    python = sys.executable
    exec_ = (python, "-m", "t5x_harness", "exec", "--google", "--slice=none", "--")
    done = run_command(*exec_, python, "-c", CLIENT, env=os.environ, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, TOLD), done.stderr


def test_beside_serve(tmp_path: Path) -> None:
    lines = tmp_path / "google.env"
    serve = [sys.executable, "-m", "t5x_harness", "serve", f"--env-file={lines}"]
    with subprocess.Popen(serve, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        try:
            assert server.stderr is not None
            while not lines.exists():
                assert server.poll() is None, server.stderr.read()
            names = (line.removeprefix("export ").partition("=") for line in lines.read_text().splitlines())
            variables = {name: shlex.split(value)[0] if value else "" for name, _, value in names}
            done = run_command(sys.executable, "-c", CLIENT, env={**os.environ, **variables})
            assert (done.returncode, done.stdout) == (0, TOLD), done.stderr
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
