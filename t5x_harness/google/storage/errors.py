"""What storage refuses, with the status and the reason that Google's JSON gives."""

from __future__ import annotations

__all__ = [
    "CannotOpen",
    "Conflict",
    "InUse",
    "Invalid",
    "NotFound",
    "NotModified",
    "PreconditionFailed",
    "StorageError",
]


class StorageError(Exception):
    """A request that cannot be done.

    Attributes:
      status: of the HTTP answer.
      reason: Google's short word for it, such as ``conditionNotMet``.
      message: in words.
    """

    status = 500
    reason = "backendError"

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or type(self).reason


class Invalid(StorageError):
    """Something in the request is malformed."""

    status, reason = 400, "invalid"


class NotFound(StorageError):
    """There is no such bucket, object, generation or upload."""

    status, reason = 404, "notFound"


class Conflict(StorageError):
    """A bucket that exists already, or is not empty."""

    status, reason = 409, "conflict"


class PreconditionFailed(StorageError):
    """A generation or metageneration is not the one that was asked for."""

    status, reason = 412, "conditionNotMet"


class NotModified(StorageError):
    """A generation or metageneration is the one that was asked not to be."""

    status, reason = 304, "notModified"


class CannotOpen(Exception):
    """The folder of a store cannot be opened; the text says why."""


class InUse(CannotOpen):
    """Another process has the folder open; the text says which."""
