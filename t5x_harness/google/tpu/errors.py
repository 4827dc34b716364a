"""Errors of the Cloud TPU API."""

from __future__ import annotations

from typing import Literal

TpuCode = Literal["INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED"]
_HTTP = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "RESOURCE_EXHAUSTED": 429,
}


class TpuError(Exception):
    """The error that answers a request."""

    def __init__(self, code: TpuCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.http_status = _HTTP[code]
