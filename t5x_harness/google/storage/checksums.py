"""MD5 and CRC32C of a stream; not in ``values``, because mounts run without the library that computes them."""

from __future__ import annotations

import base64
import hashlib

import google_crc32c

from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.values import Checksums


class Digest:
    """The running checksums of a stream; without MD5 if ``md5`` is false, as for Google's composed objects."""

    def __init__(self, *, md5: bool = True) -> None:
        self._md5 = hashlib.md5(usedforsecurity=False) if md5 else None
        self._crc32c = 0

    def update(self, data: bytes) -> None:
        if self._md5 is not None:
            self._md5.update(data)
        self._crc32c = google_crc32c.extend(self._crc32c, data)

    @property
    def checksums(self) -> Checksums:
        md5 = None if self._md5 is None else base64.b64encode(self._md5.digest()).decode()
        return Checksums(md5, base64.b64encode(self._crc32c.to_bytes(4, "big")).decode())


def verify(expected: Checksums, found: Checksums) -> None:
    """Raises Invalid if the checksums differ from those that the client announced; None is not compared."""
    for name, wanted, got in (("CRC32C", expected.crc32c, found.crc32c), ("MD5 hash", expected.md5, found.md5)):
        if wanted is not None and got is not None and wanted != got:
            raise Invalid(f'Provided {name} "{wanted}" doesn\'t match calculated {name} "{got}".', code="BadDigest")
