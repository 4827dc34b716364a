"""Unmodified clients in processes of their own: what one writes, two others read."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from t5x_harness.google.session import GoogleSession

CLOUD_WRITES = """
import fsspec, gcsfs, pathlib, sys
from google.cloud import storage
from google.cloud.storage import transfer_manager

client = storage.Client()
bucket = client.create_bucket("clients")
bucket.blob("from/storage").upload_from_string(b"storage")
with gcsfs.GCSFileSystem().open("clients/from/gcsfs", "wb") as file:
    file.write(b"gcsfs")
with fsspec.open("gs://clients/from/fsspec", "wb") as file:
    file.write(b"fsspec")
resumable = bucket.blob("from/resumable", chunk_size=1 << 18)
resumable.upload_from_string(b"r" * 1_000_000)
local = pathlib.Path(sys.argv[1], "local")
local.write_bytes(b"t" * 6_000_000)
transfer_manager.upload_chunks_concurrently(
    str(local), bucket.blob("from/manager"), chunk_size=5 << 20, worker_type="thread"
)
bucket.blob("from/composed").compose([bucket.blob("from/storage"), bucket.blob("from/gcsfs")])
bucket.blob("from/rewritten").rewrite(bucket.blob("from/fsspec"))
for name in ("gone1", "gone2"):
    bucket.blob(name).upload_from_string(b"")
with client.batch():
    bucket.blob("gone1").delete()
    bucket.blob("gone2").delete()
try:
    list(bucket.list_notifications())
except Exception as error:
    assert "does not emulate notifications" in str(error), error
else:
    raise AssertionError("notifications were not refused")
"""
TENSOR_WRITES_AND_READS = """
import jax.numpy as jnp, numpy as np, orbax.checkpoint as ocp, tensorflow as tf, tensorstore as ts
from etils import epath

kv = ts.KvStore.open("gs://clients/").result()
for name, data in {
    "storage": b"storage", "gcsfs": b"gcsfs", "fsspec": b"fsspec", "resumable": b"r" * 1_000_000,
    "manager": b"t" * 6_000_000, "composed": b"storagegcsfs", "rewritten": b"fsspec",
}.items():
    assert tf.io.gfile.GFile(f"gs://clients/from/{name}", "rb").read() == data, name
    assert kv.read(f"from/{name}").result().value == data, name
with tf.io.gfile.GFile("gs://clients/from/tf", "wb") as file:
    file.write(b"tensorflow")
with tf.io.TFRecordWriter("gs://clients/records") as writer:
    writer.write(b"record")
assert list(tf.data.TFRecordDataset("gs://clients/records").as_numpy_iterator()) == [b"record"]
kv.write("from/ts", b"tensorstore").result()
epath.Path("gs://clients/from/epath").write_text("epath")
zarr = {"driver": "zarr", "kvstore": "gs://clients/zarr/"}
array = ts.open({**zarr, "metadata": {"shape": [4], "chunks": [2], "dtype": "<f4"}}, create=True).result()
array.write(np.ones(4, "f4")).result()
ocdbt = ts.KvStore.open({"driver": "ocdbt", "base": "gs://clients/ocdbt/"}).result()
ocdbt.write("key", b"value").result()
assert ocdbt.read("key").result().value == b"value"
with ocp.CheckpointManager("gs://clients/orbax") as manager:
    manager.save(1, args=ocp.args.StandardSave({"a": jnp.arange(3)}))
    manager.wait_until_finished()
    assert manager.restore(1)["a"].tolist() == [0, 1, 2]
"""
CLOUD_READS = """
import gcsfs, numpy as np
from google.cloud import storage

fs, bucket = gcsfs.GCSFileSystem(), storage.Client().bucket("clients")
for name, data in {"tf": b"tensorflow", "ts": b"tensorstore", "epath": b"epath"}.items():
    assert fs.cat(f"clients/from/{name}") == data, name
    assert bucket.blob(f"from/{name}").download_as_bytes() == data, name
for name in ("records", "zarr/.zarray", "ocdbt/manifest.ocdbt", "orbax/1/_CHECKPOINT_METADATA"):
    assert fs.cat(f"clients/{name}") == bucket.blob(name).download_as_bytes() != b"", name
assert not bucket.blob("gone1").exists() and not fs.exists("clients/gone2")
"""
CLOUD = ("google.cloud.storage", "gcsfs", "fsspec")
TENSORS = ("tensorflow", "tensorstore", "orbax.checkpoint", "etils.epath")


def _installed(names: tuple[str, ...]) -> None:
    for name in names:
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:  # not even the package that it is in
            found = None
        if found is None:
            pytest.skip(f"{name} is not installed")


def _run(session: GoogleSession, home: Path, *command: str) -> str:
    environment = {**os.environ, **session.environment(), "HOME": str(home), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def session() -> Iterator[GoogleSession]:
    with GoogleSession() as running:
        yield running


def test_every_client_reads_what_the_others_wrote(session: GoogleSession, tmp_path: Path) -> None:
    _installed(CLOUD + TENSORS)
    for program in (CLOUD_WRITES, TENSOR_WRITES_AND_READS, CLOUD_READS):
        _run(session, tmp_path, sys.executable, "-c", program, str(tmp_path))
    assert session.refused() == {}


@pytest.mark.parametrize(
    ("tool", "make"), [(("gcloud", "storage"), ("buckets", "create")), (("gsutil",), ("mb",))], ids=["gcloud", "gsutil"]
)
def test_command_line_clients(
    tool: tuple[str, ...], make: tuple[str, ...], session: GoogleSession, tmp_path: Path
) -> None:
    if shutil.which(tool[0]) is None:
        pytest.skip(f"{tool[0]} is not installed")
    local = tmp_path / "local"
    local.write_text("by command")
    _run(session, tmp_path, *tool, *make, "gs://commands")
    _run(session, tmp_path, *tool, "cp", str(local), "gs://commands/a b")
    assert _run(session, tmp_path, *tool, "cat", "gs://commands/a b") == "by command"
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        f"{session.endpoints.url}/commands/a%20b", timeout=30
    ) as answer:
        assert answer.read() == b"by command"
