"""Requests to an emulated Google Cloud's REST APIs without a client library, and shell commands."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t5x_harness.google.session import EmulatedCloud


def ask(
    session: EmulatedCloud,
    host: str,
    path: str,
    *,
    method: str = "GET",
    body: Any = None,
    headers: Mapping[str, str] | None = None,
) -> Any:
    """Returns the JSON of an answer from one of Google's hosts, even if it is an error."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        session.endpoints.url + path, data, {"Host": host, **(headers or {})}, method=method
    )
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def run_command(
    *command: str, env: Mapping[str, str], cwd: Path | None = None, typed: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs a command without a terminal, and does not check its exit status."""
    return subprocess.run(
        command,
        env=dict(env),
        cwd=cwd,
        input=typed,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
