"""A store in a separate folder, with the bucket ``data``."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from t5x_harness.google.storage.store import ObjectStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "served"


@pytest.fixture
def store(root: Path) -> Iterator[ObjectStore]:
    with ObjectStore(root) as store:
        store.create_bucket("data")
        yield store


@pytest.fixture
def tree(root: Path, store: ObjectStore) -> Path:
    """The folder that shows the objects of the bucket."""
    return root / "buckets" / "data"


@pytest.fixture
def names(store: ObjectStore) -> Callable[[], list[str]]:
    return lambda: [found.name for found in store.list("data").objects]


@pytest.fixture
def leftovers(root: Path) -> Callable[[], list[str]]:
    """Lists the bodies that are still in ``incoming``, and so belong to no object."""

    def find() -> list[str]:
        return [path.name for path in (root / ".t5x-harness" / "incoming").iterdir()]

    return find
