"""State in Redis, for several processes and shells."""

from __future__ import annotations

import contextlib
import importlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from t5x_harness.google.product import PRODUCT
from t5x_harness.google.server.listener import Address, Peers, ThrottledLog
from t5x_harness.google.vertex.state.store import StateError

_SPACE = f"{PRODUCT}:"
# Each kind has its own prefix, because fakeredis ends the connection on Redis's own error for a wrong kind.
_VALUE, _LIST, _SET = (f"{_SPACE}{kind}:" for kind in ("value", "list", "set"))
_KINDS, _INDEX = f"{_SPACE}kinds", f"{_SPACE}index"
_AT_ONCE = 1000


def open_fake_redis() -> RedisStore:
    """Starts a Redis in Python on a free port of 127.0.0.1, which ends with the returned store.

    Like the server's own ports, it serves only connections of this user and of root.
    """
    server = import_redis("fakeredis").TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    # With Nagle's algorithm, an answer in several pieces would wait 40 ms for the client's acknowledgment.
    handler = server.RequestHandlerClass
    server.RequestHandlerClass = type(handler.__name__, (handler,), {"disable_nagle_algorithm": True})
    server.daemon_threads = True
    # Clients may end in any order, so closing does not wait for their connections.
    server.block_on_close = False
    peers, log = Peers(), ThrottledLog()

    def is_served(_: object, peer: Address) -> bool:
        refusal = peers.refusal(peer, server.server_address)
        if refusal:
            log.write(f"a connection to the state at port {server.server_address[1]} is refused: {refusal}")
        return refusal is None

    server.verify_request = is_served
    serving = threading.Thread(target=server.serve_forever, name="fake-redis", daemon=True)
    serving.start()

    def end() -> None:
        server.shutdown()
        server.server_close()
        serving.join()
        peers.close()

    try:
        return RedisStore(f"redis://127.0.0.1:{server.server_address[1]}/0", end)
    except StateError:
        end()
        raise


def import_redis(name: str) -> Any:
    """Imports a package for state in Redis; raises StateError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise StateError(
            f"this state needs {name}, not installed here: python -m pip install '{PRODUCT}[vertex]'"
        ) from None


class RedisStore:
    """A :class:`StateStore` based on Redis's transactions (WATCH and MULTI), without scripts.

    A sorted set has all keys, so that keys with a prefix are found quickly, and a hash has their kinds. Only keys that
    begin with the name of this product are used.

    Args:
      url: where other processes find the state, such as ``redis://127.0.0.1:6379/0``; a password in it is never shown.
      end: called when the store is closed, after the connection.

    Raises:
      StateError: the client is not installed, or Redis does not answer.
    """

    def __init__(self, url: str, end: Callable[[], None] = lambda: None) -> None:
        self._redis = import_redis("redis")
        self._end = end
        self.url = re.sub(r"//[^@/]*@", "//", url)
        try:
            self._client = self._redis.Redis.from_url(url)
            self._client.ping()
        except (self._redis.RedisError, ValueError) as error:
            raise StateError(f"{self.url} cannot be used for state: {error}") from None

    def get(self, key: str) -> bytes | None:
        return self.get_all([key])[0]

    def get_all(self, keys: Sequence[str]) -> list[bytes | None]:
        found: list[bytes | None] = []
        for first in range(0, len(keys), _AT_ONCE):
            some = keys[first : first + _AT_ONCE]
            with self._state_errors(), self._client.pipeline() as pipe:
                pipe.hmget(_KINDS, some)
                pipe.mget([_VALUE + key for key in some])
                kinds, values = pipe.execute()
            for key, kind in zip(some, kinds, strict=True):
                _check(key, kind, _VALUE)
            found += values
        return found

    def put(self, key: str, value: bytes) -> None:
        self._write(key, _VALUE, lambda pipe: pipe.set(_VALUE + key, value))

    def create(self, key: str, value: bytes) -> bool:

        def create(pipe: Any) -> bool:
            if pipe.hget(_KINDS, key) is not None:
                return False
            pipe.multi()
            pipe.set(_VALUE + key, value)
            pipe.hset(_KINDS, key, _VALUE)
            pipe.zadd(_INDEX, {key: 0})
            return True

        return bool(self._transaction(key, create))

    def update(self, key: str, change: Callable[[bytes], bytes]) -> bytes | None:

        def update(pipe: Any) -> bytes | None:
            value = pipe.get(_VALUE + key)
            if value is None:
                _check(key, pipe.hget(_KINDS, key), _VALUE)
                return None
            changed = change(value)
            pipe.multi()
            pipe.set(_VALUE + key, changed)
            return changed

        found: bytes | None = self._transaction(key, update)
        return found

    def delete(self, key: str, check: Callable[[bytes], object] | None = None) -> bool:
        if check is None:
            with self._state_errors(), self._client.pipeline() as pipe:
                _forget(pipe, key)
                return bool(pipe.execute()[0])

        def delete(pipe: Any) -> bool:
            value = pipe.get(_VALUE + key)
            if value is None:
                _check(key, pipe.hget(_KINDS, key), _VALUE)
                return False
            check(value)
            pipe.multi()
            _forget(pipe, key)
            return True

        return bool(self._transaction(key, delete))

    def keys(self, prefix: str) -> list[str]:
        first = prefix.encode()
        # UTF-8 has no byte 255, so all keys with the prefix are below it.
        with self._state_errors():
            return [key.decode() for key in self._client.zrangebylex(_INDEX, b"[" + first, b"(" + first + b"\xff")]

    def append(self, key: str, *values: bytes) -> int:
        if not values:
            return int(self._read(key, _LIST, lambda pipe: pipe.llen(_LIST + key)))
        return int(self._write(key, _LIST, lambda pipe: pipe.rpush(_LIST + key, *values)))

    def read(self, key: str, start: int = 0, stop: int | None = None) -> list[bytes]:
        if stop == 0:
            return []
        last = -1 if stop is None else stop - 1
        found: list[bytes] = self._read(key, _LIST, lambda pipe: pipe.lrange(_LIST + key, start, last))
        return found

    def add(self, key: str, member: str) -> bool:
        return bool(self._write(key, _SET, lambda pipe: pipe.sadd(_SET + key, member)))

    def discard(self, key: str, member: str) -> bool:

        def discard(pipe: Any) -> bool:
            if not pipe.sismember(_SET + key, member):
                _check(key, pipe.hget(_KINDS, key), _SET)
                return False
            last = pipe.scard(_SET + key) == 1
            pipe.multi()
            if last:
                _forget(pipe, key)
            else:
                pipe.srem(_SET + key, member)
            return True

        return bool(self._transaction(key, discard))

    def members(self, key: str) -> set[str]:
        found: set[bytes] = self._read(key, _SET, lambda pipe: pipe.smembers(_SET + key))
        return {member.decode() for member in found}

    def clear(self) -> None:
        with self._state_errors():
            found = list(self._client.scan_iter(f"{_SPACE}*", count=_AT_ONCE))
            for first in range(0, len(found), _AT_ONCE):
                self._client.delete(*found[first : first + _AT_ONCE])

    def close(self) -> None:
        self._client.close()
        self._end()

    @contextlib.contextmanager
    def _state_errors(self) -> Iterator[None]:
        try:
            yield
        except self._redis.RedisError as error:
            raise StateError(f"the state at {self.url} is lost: {error}") from None

    def _read(self, key: str, kind: str, ask: Callable[[Any], object]) -> Any:
        """Runs one command on a key that has a certain kind or does not exist; returns the result."""
        with self._state_errors(), self._client.pipeline() as pipe:
            pipe.hget(_KINDS, key)
            ask(pipe)
            found, answer = pipe.execute()
        _check(key, found, kind)
        return answer

    def _write(self, key: str, kind: str, ask: Callable[[Any], object]) -> Any:
        """Runs one command that creates a key or adds to it; returns the result."""

        def write(pipe: Any) -> None:
            _check(key, pipe.hget(_KINDS, key), kind)
            pipe.multi()
            ask(pipe)
            pipe.hset(_KINDS, key, kind)
            pipe.zadd(_INDEX, {key: 0})

        return self._transaction(key, write, results=True)[0]

    def _transaction(self, key: str, change: Callable[[Any], object], *, results: bool = False) -> Any:
        """Runs a transaction, and repeats it after each concurrent write to its key, regardless of the key's kind.

        Args:
          key: the key that is written.
          change: reads through the pipeline that it gets, and writes after the pipeline's ``multi()``.
          results: whether to return the results of the writes instead of the result of ``change``.
        """
        keys = (_VALUE + key, _LIST + key, _SET + key)
        with self._state_errors():
            return self._client.transaction(change, *keys, value_from_callable=not results)


def _forget(pipe: Any, key: str) -> None:
    pipe.hdel(_KINDS, key)
    pipe.zrem(_INDEX, key)
    pipe.delete(_VALUE + key, _LIST + key, _SET + key)


def _check(key: str, found: bytes | None, kind: str) -> None:
    if found is not None and found.decode() != kind:
        there, wanted = (each.removeprefix(_SPACE).rstrip(":") for each in (found.decode(), kind))
        raise StateError(f"{key} holds a {there}, not a {wanted}")
