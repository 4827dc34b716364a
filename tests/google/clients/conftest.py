"""Unmodified clients: in this process, and in another one that imports TensorFlow once for all tests.

Only the environment redirects them to the emulated Google Cloud.
"""

import base64
import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import asking
import pytest
from client_process import ClientProcess

from t5x_harness.google.gcs import FakeGcs
from t5x_harness.google.session import EmulatedCloud

_TENSORS = """
import base64, numpy as np, tensorflow as tf, tensorstore as ts

def read_by_tensorflow(bucket, name):
    return tf.io.gfile.GFile(f"gs://{bucket}/{name}", "rb").read()

def read_by_tensorstore(bucket, name):
    return bytes(ts.KvStore.open({"driver": "gcs", "bucket": bucket}).result().read(name).result().value)
"""

# gcsfs reads it on import, and the modules in this folder import gcsfs before any test.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

_NEEDED = ("tensorflow", "tensorstore", "orbax.checkpoint", "etils.epath", "gcsfs", "fsspec", "google.cloud.storage")

Reader = Callable[[str, str], bytes]
Run = Callable[..., Any]


@pytest.fixture(scope="session")
def _installed() -> None:
    for name in _NEEDED:
        try:
            found = importlib.util.find_spec(name)  # TensorFlow must not be imported here
        except ModuleNotFoundError:  # not even its parent package is installed
            found = None
        if found is None:
            pytest.skip(f"{name} is not installed")


@pytest.fixture(scope="session")
def client_environment(fake_gcs_server: EmulatedCloud, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    home = tmp_path_factory.mktemp("home")
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "HOME": str(home)}
    return {**os.environ, **fake_gcs_server.environment(), **quiet}


@pytest.fixture
def run_command(client_environment: Mapping[str, str], tmp_path: Path) -> Callable[..., None]:
    """Returns a function that runs a command in the test's folder with the emulated cloud; it has to succeed."""

    def run(*command: str) -> None:
        done = asking.run_command(*command, env=client_environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    return run


@pytest.fixture(scope="session")
def _tensors(
    _installed: None, client_environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClientProcess]:
    client = ClientProcess(client_environment, tmp_path_factory.mktemp("client") / "log")
    with contextlib.closing(client):
        client.run(_TENSORS)
        yield client


@pytest.fixture
def tensors(_tensors: ClientProcess, fake_gcs: FakeGcs) -> Run:
    """Yields a process with TensorFlow as ``tf``, tensorstore as ``ts`` and NumPy as ``np``, on ``fake_gcs``."""
    return _tensors.run


@pytest.fixture
def readers(tensors: Run) -> Mapping[str, Reader]:
    """Returns functions that read an object with a client, by the clients' names."""
    import gcsfs
    from google.cloud import storage

    def there(function: str) -> Reader:
        def read(bucket: str, name: str) -> bytes:
            code = f"result = base64.b64encode({function}(bucket, name)).decode()"
            return base64.b64decode(tensors(code, bucket=bucket, name=name))

        return read

    client, files = storage.Client(), gcsfs.GCSFileSystem(skip_instance_cache=True, use_listings_cache=False)
    return {
        "google-cloud-storage": lambda bucket, name: client.bucket(bucket).blob(name).download_as_bytes(),
        "gcsfs": lambda bucket, name: files.cat_file(f"{bucket}/{name}"),
        "tensorflow": there("read_by_tensorflow"),
        "tensorstore": there("read_by_tensorstore"),
    }


@pytest.fixture
def read_back(readers: Mapping[str, Reader]) -> Callable[..., None]:
    """Returns a function that reads objects through all clients except the one that wrote them, and compares."""

    def check(bucket: str, written: Mapping[str, bytes], *, by: str) -> None:
        others = [name for name in readers if name != by]
        assert len(others) >= 2
        for name, data in written.items():
            for other in others:
                assert readers[other](bucket, name) == data, f"{name}, which {by} wrote, read by {other}"

    return check


@pytest.fixture
def fetch_folder(readers: Mapping[str, Reader], tmp_path: Path) -> Callable[[str, str], Path]:
    """Returns a function that copies objects with a prefix to a folder. Two clients, not TensorFlow, have to agree."""
    from google.cloud import storage

    def fetch(bucket: str, prefix: str) -> Path:
        names = [blob.name for blob in storage.Client().list_blobs(bucket, prefix=prefix)]
        files = [name for name in names if not name.endswith("/")]
        assert files
        target = tmp_path / "fetched" / prefix
        for name in files:
            data = readers["google-cloud-storage"](bucket, name)
            assert readers["gcsfs"](bucket, name) == data, name
            path = tmp_path / "fetched" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return target

    return fetch
