"""What storage refuses, with the status, the reason and the code that Google's JSON and XML give."""

from __future__ import annotations


class StoreError(Exception):
    """A request that cannot be done.

    Attributes:
      status: of the HTTP answer.
      reason: the JSON API's short word for it, such as ``conditionNotMet``.
      code: the XML API's, such as ``NoSuchBucket``.
    """

    status = 500
    reason = "backendError"
    code = "InternalError"

    def __init__(self, message: str, *, reason: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or type(self).reason
        self.code = code or type(self).code


class Invalid(StoreError):
    """Something in the request is malformed."""

    status, reason, code = 400, "invalid", "InvalidArgument"


class NoSuchResource(StoreError):
    """There is no such bucket, object, generation or upload."""

    status, reason, code = 404, "notFound", "NoSuchKey"


class NoSuchBucket(NoSuchResource):
    """There is no such bucket."""

    code = "NoSuchBucket"

    def __init__(self, bucket: str) -> None:
        super().__init__("The specified bucket does not exist.")
        self.bucket = bucket


class Forbidden(StoreError):
    """A file from outside that this server may not read."""

    status, reason, code = 403, "forbidden", "AccessDenied"


class Conflict(StoreError):
    """A bucket that exists already, or is not empty."""

    status, reason, code = 409, "conflict", "Conflict"


class PreconditionFailed(StoreError):
    """A generation or metageneration is not the one that was asked for."""

    status, reason, code = 412, "conditionNotMet", "PreconditionFailed"


class NotModified(StoreError):
    """A generation or metageneration is the one that was asked not to be."""

    status, reason, code = 304, "notModified", "NotModified"


class DiskRefused(StoreError):
    """The disk under the store takes nothing more, or is broken.

    403, as TensorFlow tries every status of 500 and above again, for minutes and without a word.
    """

    status, reason, code = 403, "insufficientStorage", "InsufficientStorage"


class WouldWait(Exception):
    """What was asked for without waiting would have to wait; nothing was done."""


class CannotOpen(Exception):
    """The folder of a store cannot be opened; the text says why."""


class InUse(CannotOpen):
    """Another process has the folder open; the text says which."""
