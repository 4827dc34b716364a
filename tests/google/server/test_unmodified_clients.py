"""Clients as they are installed reach storage by the environment alone: one writes, two others read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from t5x_harness.google.session import GoogleSession

# tf.io.gfile has Google's addresses compiled in: it comes through the proxy and TLS, and sends its odd header.
WRITE = """
import tensorflow as tf
from google.cloud import storage

storage.Client().create_bucket("bucket")
with tf.io.gfile.GFile("gs://bucket/folder/file", "w") as file:
    file.write("0123456789" * 10_000)
print(tf.io.gfile.listdir("gs://bucket/folder"), tf.io.gfile.stat("gs://bucket/folder/file").length)
"""
READ = {
    "tensorflow": "import tensorflow as tf; data = tf.io.gfile.GFile('gs://bucket/folder/file', 'rb').read()",
    "tensorstore": (
        "import tensorstore; store = tensorstore.KvStore.open('gs://bucket/').result();"
        "data = store.read('folder/file').result().value"
    ),
    "google.cloud.storage": (
        "from google.cloud import storage; blob = storage.Client().bucket('bucket').blob('folder/file');"
        "data = blob.download_as_bytes()"
    ),
    "gcsfs": "import gcsfs; data = gcsfs.GCSFileSystem().cat('bucket/folder/file')",
}


def _run(session: GoogleSession, home: Path, program: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **session.environment(), "HOME": str(home), "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleSession]:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    pytest.importorskip("google.cloud.storage", reason="google-cloud-storage is not installed")
    with GoogleSession() as session:
        done = _run(session, tmp_path_factory.mktemp("home"), WRITE)
        assert done.stdout == "['file'] 100000\n", done.stderr
        yield session


@pytest.mark.parametrize("library", READ)
def test_what_tensorflow_wrote_is_read_by(library: str, written: GoogleSession, tmp_path: Path) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed")
    done = _run(written, tmp_path, f"{READ[library]}\nprint(len(data), data[-12:].decode())")
    assert done.stdout == "100000 890123456789\n", done.stderr
    assert dict(written.refused()) == {}
