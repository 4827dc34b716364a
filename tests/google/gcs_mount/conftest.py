"""A store's folder with one bucket, and fixtures to access it through ``/gcs`` from other processes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mounted import needs

from t5x_harness.google.gcs_mount.mount import MountMode
from t5x_harness.google.gcs_mount.probing import command_prefix
from t5x_harness.google.storage.store import ObjectStore

Inside = Callable[..., Any]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of a store with the object ``gs://my-bucket/data/hello.txt``."""
    folder = tmp_path / "store" / "buckets" / "my-bucket" / "data"
    folder.mkdir(parents=True)
    (folder / "hello.txt").write_text("hello")
    return tmp_path / "store"


@pytest.fixture
def bucket(root: Path) -> Path:
    """The folder that holds the bucket's objects."""
    return root / "buckets" / "my-bucket"


@pytest.fixture(params=list(MountMode))
def mode(request: pytest.FixtureRequest) -> MountMode:
    """Each mode that this machine allows."""
    needs(request.param)
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def inside(root: Path) -> Inside:
    """Runs Python code in a process that sees the store; returns what the code puts into ``result``."""

    def run(code: str, *, mode: MountMode = MountMode.FOLDER, cwd: Path | None = None, **environment: str) -> Any:
        program = f"import json, os\nresult = None\n{code}\nprint(json.dumps(result))"
        done = subprocess.run(
            [*command_prefix(root, mode), sys.executable, "-c", program],
            check=False, capture_output=True, text=True, cwd=cwd, env={**os.environ, **environment}, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    """A store with the bucket ``data``; it does not wait for the disk, which matters only for power cuts."""
    with ObjectStore(tmp_path) as store:
        store._core.database._execute("PRAGMA synchronous = OFF")
        store.create_bucket("data")
        yield store
