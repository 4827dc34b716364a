"""S3 on this machine, for those whose data or checkpoints are there: moto's server in a process of its own.

It serves boto3, s3fs, tensorstore's ``s3`` driver and everything else that takes AWS' own variables, in this process
and in those that it starts, as they are. It is no part of the private Google and knows nothing of ``gs://``.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlencode

__all__ = ["ACCESS_KEY", "REGION", "S3Error", "S3Server"]

REGION = "us-east-1"
ACCESS_KEY = "testing"
"""Key and secret; the server takes any."""

_HOST = "127.0.0.1"
_END_SECONDS = 10.0


class S3Error(RuntimeError):
    """The server did not start, or refused a request; the text says why."""


class S3Server:
    """A server with no buckets, from its making until :meth:`close`; a context manager.

    It ends with this process, however that ends.
    """

    def __init__(self, *, start_timeout: float = 60.0) -> None:
        """Starts the server and waits until it answers.

        Args:
          start_timeout: how many seconds that may take; importing moto takes one or two.

        Raises:
          S3Error: moto is not installed, or the server did not start.
        """
        if importlib.util.find_spec("moto") is None:
            raise S3Error("S3 is emulated by moto, which is not installed: python -m pip install 't5x-harness[s3]'")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "t5x_harness.google.s3"],
            stdin=subprocess.PIPE,  # its end is this process' end
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for this process, which then ends that one
        )
        try:
            self._port = self._read_port(time.monotonic() + start_timeout, start_timeout)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def endpoint(self) -> str:
        """The address, as clients take it: ``http://127.0.0.1:PORT``."""
        return f"http://{_HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    @property
    def environment(self) -> dict[str, str | None]:
        """Variables that send clients here, with credentials; None takes one out, so nothing of a user's counts."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": ACCESS_KEY,
            "AWS_SESSION_TOKEN": None,
            "AWS_SECURITY_TOKEN": None,
            "AWS_PROFILE": None,
            "AWS_DEFAULT_PROFILE": None,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def make_bucket(self, name: str) -> None:
        """Makes a bucket.

        Raises:
          S3Error: S3 takes no such name, or it exists already.
        """
        self._request("PUT", f"/{quote(name)}")

    def put(self, bucket: str, key: str, body: bytes) -> None:
        """Writes an object.

        Raises:
          S3Error: there is no such bucket.
        """
        self._request("PUT", f"/{quote(bucket)}/{quote(key)}", body)

    def clear(self) -> None:
        """Forgets all buckets."""
        self._request("POST", "/moto-api/reset")

    def close(self) -> None:
        """Ends the server. May be called again."""
        process = self._process
        for stream in (process.stdin, process.stdout):
            if stream:
                stream.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._log.close()

    def _read_port(self, deadline: float, limit: float) -> int:
        process = self._process
        assert process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            ready = selector.select(max(0.0, deadline - time.monotonic()))
        if not ready:
            raise S3Error(f"moto's server was not ready after {limit:g} s")
        line = process.stdout.readline()
        if not line:
            process.wait()
            self._log.seek(0)
            lines = self._log.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise S3Error(f"moto's server did not start: {lines[-1]}; python -m pip install 't5x-harness[s3]'")
        return int(line)

    def _request(self, method: str, target: str, body: bytes = b"") -> None:
        connection = http.client.HTTPConnection(_HOST, self._port, timeout=60)
        # The server finds the service and the region by the credentials' scope, and does not check the signature.
        scope = urlencode({"Credential": f"{ACCESS_KEY}/20200101/{REGION}/s3/aws4_request"}, safe="/")
        headers: Mapping[str, str] = {"Authorization": f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0"}
        with contextlib.closing(connection):
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        if answer.status >= 300:
            raise S3Error(f"{method} {target}: {answer.status} {_message(text)}")


def _message(text: str) -> str:
    """What S3's XML says, as ``Code: Message``."""
    parts = [text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0] for tag in ("Code", "Message")]
    return ": ".join(part for part in parts if part) or text.strip()


def main() -> None:
    """Serves on a free port of loopback, says which on stdout, and ends when stdin does."""
    import logging

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server(_HOST, 0, DomainDispatcherApplication(create_backend_app), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # what clients still ask for, nobody waits for


if __name__ == "__main__":
    main()
