"""A Redis in Python on this machine, for several processes of one session without a server of their own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from t5x_harness.google.vertex.state.redis_store import import_redis, open_redis

if TYPE_CHECKING:
    from t5x_harness.google.vertex.state.redis_store import RedisStore

__all__ = ["open_fake_redis"]


def open_fake_redis() -> RedisStore:
    """Starts one on a free port of 127.0.0.1; it ends with the store that is returned.

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
