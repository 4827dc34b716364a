"""Helpers for the tests of a store."""

import base64
import hashlib

from t5x_harness.google.storage.core import Digest
from t5x_harness.google.storage.store import ObjectStore


def content(store: ObjectStore, name: str, bucket: str = "data") -> bytes:
    with store.open_read(bucket, name) as reader:
        return reader.read()


def md5_of(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()


def crc32c_of(data: bytes) -> str | None:
    digest = Digest()
    digest.update(data)
    return digest.checksums.crc32c
