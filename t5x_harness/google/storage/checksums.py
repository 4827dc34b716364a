"""MD5 and CRC32C while bytes stream by.

CRC32C comes from ``google-crc32c`` (extra ``google``), whose C code does more than a gigabyte a second. Without it the
table below does the same in Python at a few megabytes a second: right, and fit for small objects only.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable

from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.values import Checksums


def _table() -> list[int]:
    """What each byte does to a checksum; the polynomial is Castagnoli's, its bits reversed."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)  # noqa: PLW2901
        table.append(value)
    return table


def _python_extend() -> Callable[[int, bytes], int]:
    table = _table()

    def extend(crc: int, data: bytes) -> int:
        crc ^= 0xFFFFFFFF
        for byte in data:
            crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
        return crc ^ 0xFFFFFFFF

    return extend


def _fastest_extend() -> Callable[[int, bytes], int]:
    try:
        import google_crc32c
    except ImportError:
        return _python_extend()
    extend: Callable[[int, bytes], int] = google_crc32c.extend
    return extend


_extend = _fastest_extend()


class Digest:
    """The running checksums of a stream.

    Args:
      md5: False leaves MD5 out, as Google does for composed objects.
    """

    def __init__(self, *, md5: bool = True) -> None:
        self._md5 = hashlib.md5(usedforsecurity=False) if md5 else None
        self._crc32c = 0

    def update(self, data: bytes) -> None:
        if self._md5 is not None:
            self._md5.update(data)
        self._crc32c = _extend(self._crc32c, data)

    @property
    def checksums(self) -> Checksums:
        md5 = None if self._md5 is None else base64.b64encode(self._md5.digest()).decode()
        return Checksums(md5, base64.b64encode(self._crc32c.to_bytes(4, "big")).decode())


def verify(expected: Checksums, found: Checksums) -> None:
    """Compares what came with what the client says it sent.

    Raises:
      Invalid: they differ; a checksum that is None on either side is not compared.
    """
    for name, wanted, got in (("CRC32C", expected.crc32c, found.crc32c), ("MD5 hash", expected.md5, found.md5)):
        if wanted is not None and got is not None and wanted != got:
            raise Invalid(f'Provided {name} "{wanted}" doesn\'t match calculated {name} "{got}".', code="BadDigest")
