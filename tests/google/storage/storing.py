"""Helpers for the tests of a store."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from t5x_harness.google.storage.core import Digest
from t5x_harness.google.storage.store import ObjectStore

__all__ = ["at_once", "content", "crc32c_of", "md5_of"]


def content(store: ObjectStore, name: str, bucket: str = "data") -> bytes:
    with store.open_read(bucket, name) as reader:
        return reader.read()


def at_once(*calls: Callable[[], Any]) -> None:
    """Makes calls in parallel threads, and raises the first exception of a call."""
    with ThreadPoolExecutor(len(calls)) as pool:
        for running in [pool.submit(call) for call in calls]:
            running.result()


def md5_of(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()


def crc32c_of(data: bytes) -> str | None:
    digest = Digest()
    digest.update(data)
    return digest.checksums.crc32c
