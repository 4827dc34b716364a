"""Fixtures with stores in memory, in fakeredis, and in a real Redis if one is installed."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from t5x_harness.google.vertex.state import StateStore, open_store

KINDS = ("memory", "fakeredis", "redis")


@pytest.fixture(scope="session")
def _redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yields the URL of a Redis on its own socket, which writes nothing to disk."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("no redis-server is installed")
    folder = tmp_path_factory.mktemp("redis")
    socket = folder / "socket"
    options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--appendonly", "no", "--dir", str(folder)]
    server = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
    try:
        while not socket.exists():
            assert server.poll() is None, "redis-server ended"
            time.sleep(0.01)
        yield f"unix://{socket}?db=0"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="session")
def _fakeredis() -> Iterator[str]:
    store = open_store("fakeredis:")
    yield store.url
    store.close()


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[[], StateStore]]:
    """Yields a function that opens another connection to the same state, which is empty at first."""
    url = "memory:" if request.param == "memory" else request.getfixturevalue(f"_{request.param}")
    stores = [open_store(url)]
    stores[0].clear()

    def connect() -> StateStore:
        if url != "memory:":
            stores.append(open_store(url))
        return stores[-1]

    yield connect
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Callable[[], StateStore]) -> StateStore:
    """Opens an empty store."""
    return opened()


@pytest.fixture
def other(opened: Callable[[], StateStore]) -> StateStore:
    """Opens another connection to the same state."""
    return opened()
