"""Eight processes write to one database, and to their own objects, while storage fails: nothing is lost."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

WRITERS = 8
KEYS = 24  # of each writer

# Retries happen almost immediately, so that the test does not wait. Their number is the default.
WRITER = """
import sys, tensorstore as ts

bucket, writer, keys = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
context = ts.Context({"gcs_request_retries": {"initial_delay": "5ms", "max_delay": "50ms"}})
database = ts.KvStore.open({"driver": "ocdbt", "base": f"gs://{bucket}/db/"}, context=context).result()
objects = ts.KvStore.open(f"gs://{bucket}/objects/", context=context).result()
body = lambda index: f"{writer}/{index};".encode() * (1 + index * 131)
sys.stdin.readline()  # all begin together
for index in range(0, keys, 4):
    written = [database.write(f"{writer}/{index + i}", body(index + i)) for i in range(2)]
    with ts.Transaction() as transaction:
        for i in (2, 3):
            database.with_transaction(transaction)[f"{writer}/{index + i}"] = body(index + i)
    written += [objects.write(f"{writer}/{index + i}", body(index + i)) for i in range(4)]
    for each in written:
        each.result()
"""


def test_nothing_is_lost(
    client_environment: Mapping[str, str],
    tensors: Any,
    fake_gcs: Any,
    gcs_bucket: str,
    fetch_folder: Callable[[str, str], Path],
) -> None:
    for after in range(10, 200, 19):
        fake_gcs.fail(503, on="upload", after=after, times=3)
        fake_gcs.reset(on="upload", after=after + 5, times=2)
        fake_gcs.reset(bytes=20, on="upload", after=after + 9)
        fake_gcs.fail(503, on="download", after=after)
        fake_gcs.truncate(bytes=30, on="download", after=after + 3)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, gcs_bucket, str(index), str(KEYS)],
            env=dict(client_environment),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for index in range(WRITERS)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"\n")
        writer.stdin.flush()
    for writer in writers:
        _, said = writer.communicate(timeout=200)
        assert writer.returncode == 0, said.decode(errors="replace")[-3000:]

    bodies = {f"{w}/{i}": f"{w}/{i};".encode() * (1 + i * 131) for w in range(WRITERS) for i in range(KEYS)}
    folder = fetch_folder(gcs_bucket, "objects")  # by two other clients
    assert {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("*/*")} == bodies
    database = fetch_folder(gcs_bucket, "db")
    read = """
        kv = ts.KvStore.open({"driver": "ocdbt", "base": at}).result()
        keys = kv.list().result()
        result = {key.decode(): bytes(it.result().value).decode() for key, it in [(key, kv.read(key)) for key in keys]}
        """
    wanted = {name: body.decode() for name, body in bodies.items()}
    assert tensors(read, at=f"file://{database}/") == wanted
    assert tensors(read, at=f"gs://{gcs_bucket}/db/") == wanted
    told = [request.fault for request in fake_gcs.requests]
    assert {"fail", "reset", "truncate"} <= set(told)
