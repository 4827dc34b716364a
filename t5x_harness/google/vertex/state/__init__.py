"""The state of an emulated Vertex AI: in this process, or in Redis for several processes."""

from t5x_harness.google.vertex.state.redis_store import RedisStore, open_fake_redis
from t5x_harness.google.vertex.state.store import MemoryStore, StateError, StateStore

__all__ = ["StateError", "StateStore", "open_store"]


def open_store(url: str) -> StateStore:
    """Opens the state at a URL.

    Args:
      url: ``memory:`` for this process alone; ``fakeredis:`` for a Redis in Python, which ends with the store, and
        which other processes reach at the store's ``url``; or ``redis://HOST:PORT/DB``, ``rediss://…`` or ``unix://…``
        for a running Redis.

    Raises:
      StateError: the URL is not one of these, or the Redis cannot be reached.
    """
    scheme, separator, _ = url.partition(":")
    if url == "memory:":
        return MemoryStore()
    if url == "fakeredis:":
        return open_fake_redis()
    if separator and scheme in ("redis", "rediss", "unix"):
        return RedisStore(url)
    raise StateError(f"{url!r} is not a state: use memory:, fakeredis: or redis://HOST:PORT/DB")
