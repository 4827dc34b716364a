"""How JAX writes a program into its cache, which several runs may read and fill at the same time."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
from types import ModuleType
from typing import Any

__all__ = ["write_entries_whole"]


def write_entries_whole(lru_cache: ModuleType) -> None:
    """Has JAX put a program into a local cache whole or not at all.

    JAX writes into the file that others may be reading by then, and leaves one that is there alone, so what a process
    wrote by half when it was killed would stay. Here the file takes its name when it is written, in place of any other.

    Args:
      lru_cache: JAX's module ``jax._src.lru_cache``, just imported.
    """
    cache_class: Any = getattr(lru_cache, "LRUCache", None)
    suffix = getattr(lru_cache, "_CACHE_SUFFIX", None)
    put = getattr(cache_class, "put", None)
    if put is None or suffix is None or hasattr(put, "__wrapped__"):  # a JAX that keeps programs otherwise
        return

    @functools.wraps(put)
    def put_whole(self: Any, key: str, value: bytes) -> None:
        folder = str(self.path)
        if not key or self.eviction_enabled or "://" in folder:
            put(self, key, value)
            return
        unfinished = os.path.join(folder, f"{secrets.token_hex(8)}{suffix}")  # is trimmed as if it was an entry
        try:
            with open(unfinished, "xb", opener=_open_private) as file:
                file.write(value)
            os.replace(unfinished, os.path.join(folder, f"{key}{suffix}"))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            raise

    cache_class.put = put_whole


def _open_private(path: str, flags: int) -> int:
    """As :func:`os.open`, for this user alone whatever the umask: what others may write to is not run."""
    return os.open(path, flags, 0o600)
