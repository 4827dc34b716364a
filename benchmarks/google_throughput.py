"""Measures how fast an emulated Google Cloud puts and gets objects, for one client with one thread.

    python benchmarks/google_throughput.py [--rounds 3] [--write docs/performance.md]

Each round measures one figure after another, so that a machine whose speed drifts slows all of them alike:

put, get          objects of 1 KB and of 8 MB over plain HTTP, one request after another on one connection of
                  `http.client`, media uploads and downloads of the JSON API
emulator          the same with gcp-storage-emulator, which also keeps its objects on disk
TensorFlow        `tf.io.gfile` writing and reading whole objects of 1 KB through the proxy and TLS
2 GB, peak memory the peak resident memory of the server's process after an object of 2 GB was put and got
new file          creating one empty file in the folder of objects, as every put does: 0.01 ms, but up to 0.5 ms on ext4
                  without a journal after many files were deleted; TMPDIR names another place
start             not measured here: see benchmarks/google_start.py

gcp-storage-emulator is not a dependency of this project. Its rows are left out unless it is on the PATH:

    python -m venv emulator && emulator/bin/pip install gcp-storage-emulator
    PATH="$PATH:$PWD/emulator/bin" python benchmarks/google_throughput.py

Figures are medians over the rounds; ratios are made inside each round first.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from reporting import report

from t5x_harness.vertex.cloud import GoogleSession

BUCKET = "benchmark"
SMALL, LARGE, HUGE = 1 << 10, 8 << 20, 2 << 30
SMALL_COUNT, LARGE_COUNT = 1000, 24
EMULATOR = "gcp-storage-emulator"

TENSORFLOW = """
import os, time
import tensorflow as tf
body = os.urandom(1024)
tf.io.gfile.GFile("gs://benchmark/warm", "wb").write(body)
for what in ("put", "get"):
    start = time.perf_counter()
    for number in range(200):
        with tf.io.gfile.GFile(f"gs://benchmark/tf/{number}", "wb" if what == "put" else "rb") as file:
            if what == "put":
                file.write(body)
            else:
                assert file.read() == body
    print(200 / (time.perf_counter() - start))
"""


class Client:
    """A connection that is opened again after the server has closed it."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)

    def ask(self, method: str, path: str, body: bytes | Iterable[bytes] | None = None, **headers: str) -> bytes:
        """Returns the body of the answer."""
        self._connection.request(method, path, body, {"Content-Type": "application/octet-stream", **headers})
        answer = self._connection.getresponse()
        found = answer.read()
        if answer.status != 200:
            sys.exit(f"{method} {path}: {answer.status} {found[:500]!r}")
        return found

    def make_bucket(self) -> None:
        resource = json.dumps({"name": BUCKET}).encode()
        self.ask("POST", "/storage/v1/b?project=p", resource, **{"Content-Type": "application/json"})

    def put(self, name: str, body: bytes) -> None:
        self.ask("POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={name}", body)

    def get(self, name: str) -> bytes:
        return self.ask("GET", f"/storage/v1/b/{BUCKET}/o/{name}?alt=media")

    def close(self) -> None:
        self._connection.close()


def rate(count: int, call: Callable[[int], object]) -> float:
    """Returns the calls per second."""
    start = time.perf_counter()
    for number in range(count):
        call(number)
    return count / (time.perf_counter() - start)


def rates(client: Client) -> dict[str, float]:
    """Returns the four figures of a server."""
    client.make_bucket()
    small, large = os.urandom(SMALL), os.urandom(LARGE)
    client.put("warm", small)
    client.put("warm", large)
    if client.get("warm") != large:
        sys.exit("an object is not what was put")
    megabytes = LARGE / 1e6
    return {
        "1 KB put (per second)": rate(SMALL_COUNT, lambda n: client.put(f"small-{n}", small)),
        "1 KB get (per second)": rate(SMALL_COUNT, lambda n: client.get(f"small-{n}")),
        "8 MB put (MB per second)": megabytes * rate(LARGE_COUNT, lambda n: client.put(f"large-{n}", large)),
        "8 MB get (MB per second)": megabytes * rate(LARGE_COUNT, lambda n: client.get(f"large-{n}")),
    }


@contextlib.contextmanager
def emulator(command: str) -> Iterator[int]:
    """Runs gcp-storage-emulator on disk; yields its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [command, "start", "--host=127.0.0.1", f"--port={port}", "--quiet"],
            env={**os.environ, "STORAGE_BASE": folder},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            deadline = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                if process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"{command} does not start")
                time.sleep(0.1)
            yield port
        finally:
            process.terminate()
            process.wait()


def tensorflow(session: GoogleSession, folder: str) -> dict[str, float]:
    """Returns TensorFlow's puts and gets per second, measured in a separate process."""
    environment = {**os.environ, **session.environment(), "HOME": folder, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", TENSORFLOW], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"TensorFlow failed:\n{done.stderr[-3000:]}")
    put, get = map(float, done.stdout.split())
    return {"TensorFlow, 1 KB put (per second)": put, "TensorFlow, 1 KB get (per second)": get}


def peak_memory() -> float:
    """Returns the peak resident memory of a server in MiB, after an object of 2 GB was put and got."""
    piece = os.urandom(1 << 20)
    with GoogleSession() as session:
        client = Client(session.endpoints.http)
        client.make_bucket()
        pieces = (piece for _ in range(HUGE // len(piece)))
        path = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=huge"
        client.ask("POST", path, pieces, **{"Content-Length": str(HUGE)})
        client.close()
        url = f"{session.endpoints.url}/storage/v1/b/{BUCKET}/o/huge?alt=media"
        drain = "import sys, urllib.request as u\nf = u.urlopen(sys.argv[1])\nwhile f.read(1 << 20): pass"
        subprocess.run([sys.executable, "-c", drain, url], env={**os.environ, "no_proxy": "*"}, check=True)
        status = Path(f"/proc/{session.endpoints.pid}/status").read_text()
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


def new_file(count: int = 500) -> float:
    """Returns the median milliseconds to create an empty file."""
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            start = time.perf_counter()
            os.close(os.open(f"{folder}/{number}", os.O_CREAT | os.O_EXCL))
            seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)


def measure() -> dict[str, float]:
    """Makes one round."""
    with GoogleSession() as session, tempfile.TemporaryDirectory() as folder:
        client = Client(session.endpoints.http)
        figures = rates(client)
        client.close()
        with_tensorflow = tensorflow(session, folder)
    if command := shutil.which(EMULATOR):
        with emulator(command) as port:
            client = Client(port)
            others = rates(client)
            client.close()
        figures |= {f"emulator, {name}": value for name, value in others.items()}
        figures |= {f"{name.partition(' (')[0]} / emulator's": figures[name] / others[name] for name in others}
    return {**figures, **with_tensorflow, "2 GB, peak memory (MiB)": peak_memory(), "new file (ms)": new_file()}


if __name__ == "__main__":
    if not shutil.which(EMULATOR):
        print(f"{EMULATOR} is not on the PATH, so its rows are left out; --help says how to have it", file=sys.stderr)
    report("google_throughput", measure, rounds=3, description=__doc__)
