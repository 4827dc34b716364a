"""Opens the state that a URL names."""

from __future__ import annotations

import threading

from t5x_harness.google.vertex.state.memory import MemoryStore
from t5x_harness.google.vertex.state.redis_store import RedisStore, import_redis, open_redis
from t5x_harness.google.vertex.state.store import StateError, StateStore


def _open_fake_redis() -> RedisStore:
    """Starts a Redis in Python on a free port of 127.0.0.1; it ends with the store that is returned.

    Raises:
      StateError: ``fakeredis`` is not installed.
    """
    server = import_redis("fakeredis").TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    # Each answer goes out at once. With Nagle's algorithm one of several pieces waits 40 ms for the client's word.
    handler = server.RequestHandlerClass
    server.RequestHandlerClass = type(handler.__name__, (handler,), {"disable_nagle_algorithm": True})
    server.daemon_threads = True
    # Which client ends first must not matter, so nobody waits for the connections of others.
    server.block_on_close = False
    serving = threading.Thread(target=server.serve_forever, name="fake-redis", daemon=True)
    serving.start()

    def end() -> None:
        server.shutdown()
        server.server_close()
        serving.join()

    return open_redis(f"redis://127.0.0.1:{server.server_address[1]}/0", end)


def open_store(url: str) -> StateStore:
    """Opens the state at a URL.

    Args:
      url: ``memory:`` for this process alone, ``fakeredis:`` for a Redis in Python that ends with the store and that
        others reach by the store's ``url``, or ``redis://HOST:PORT/DB``, ``rediss://…`` or ``unix://…`` of a running
        one.

    Raises:
      StateError: it is none of these, or cannot be reached.
    """
    scheme, separator, _ = url.partition(":")
    if url == "memory:":
        return MemoryStore()
    if url == "fakeredis:":
        return _open_fake_redis()
    if separator and scheme in ("redis", "rediss", "unix"):
        return open_redis(url)
    raise StateError(f"{url!r} names no state: memory:, fakeredis: or redis://HOST:PORT/DB")
