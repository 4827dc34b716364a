"""Unmodified clients reach storage through the environment alone: one writes, and the others read."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from t5x_harness.google.session import EmulatedCloud

# tf.io.gfile has Google's addresses compiled in: it connects through the proxy and TLS, and sends its odd header.
CLIENTS = """
import gcsfs
import tensorflow as tf
import tensorstore
from google.cloud import storage

client = storage.Client()
client.create_bucket("bucket")
with tf.io.gfile.GFile("gs://bucket/folder/file", "w") as file:
    file.write("0123456789" * 10_000)
print(tf.io.gfile.listdir("gs://bucket/folder"), tf.io.gfile.stat("gs://bucket/folder/file").length)
read = {
    "tensorflow": tf.io.gfile.GFile("gs://bucket/folder/file", "rb").read(),
    "tensorstore": tensorstore.KvStore.open("gs://bucket/").result().read("folder/file").result().value,
    "google.cloud.storage": client.bucket("bucket").blob("folder/file").download_as_bytes(),
    "gcsfs": gcsfs.GCSFileSystem().cat("bucket/folder/file"),
}
print([name for name, data in read.items() if data != b"0123456789" * 10_000])
"""


def _missing() -> list[str]:
    """Returns the libraries that are not installed, without importing any, because imports take long."""
    names = ("tensorflow", "tensorstore", "gcsfs")
    return [name for name in names if importlib.util.find_spec(name) is None]


@pytest.mark.skipif(bool(_missing()), reason=f"{', '.join(_missing())} is not installed")
def test_what_tensorflow_wrote_is_read_by_all(tmp_path: Path) -> None:
    with EmulatedCloud() as session:
        environment = {**os.environ, **session.environment(), "HOME": str(tmp_path), "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run(
            [sys.executable, "-c", CLIENTS], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.stdout == "['file'] 100000\n[]\n", done.stderr
        assert dict(session.refused()) == {}
