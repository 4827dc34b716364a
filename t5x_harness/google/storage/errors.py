"""The errors of storage, with the status, the reason and the code that Google's JSON and XML APIs return."""


class StoreError(Exception):
    """A request that the store refuses."""

    status = 500  # of the HTTP answer
    reason = "backendError"  # the JSON API's word for the error, such as conditionNotMet
    code = "InternalError"  # the XML API's word, such as NoSuchBucket

    def __init__(self, message: str, *, reason: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or type(self).reason
        self.code = code or type(self).code


class Invalid(StoreError):
    """Something in the request is malformed."""

    status, reason, code = 400, "invalid", "InvalidArgument"


class NoSuchResource(StoreError):
    """The bucket, object, generation or upload does not exist."""

    status, reason, code = 404, "notFound", "NoSuchKey"


class NoSuchBucket(NoSuchResource):
    """The bucket does not exist."""

    code = "NoSuchBucket"

    def __init__(self, bucket: str) -> None:
        super().__init__("The specified bucket does not exist.")
        self.bucket = bucket


class Forbidden(StoreError):
    """The server may not read a file that someone else wrote."""

    status, reason, code = 403, "forbidden", "AccessDenied"


class Conflict(StoreError):
    """A bucket exists already, or is not empty."""

    status, reason, code = 409, "conflict", "Conflict"


class PreconditionFailed(StoreError):
    """A generation or metageneration differs from the requested one."""

    status, reason, code = 412, "conditionNotMet", "PreconditionFailed"


class NotModified(StoreError):
    """A generation or metageneration equals the one that the request excludes."""

    status, reason, code = 304, "notModified", "NotModified"


class DiskRefused(StoreError):
    """The disk under the store is full or broken.

    The status is 403 because TensorFlow silently retries every status of 500 and above for minutes.
    """

    status, reason, code = 403, "insufficientStorage", "InsufficientStorage"


class WouldWait(Exception):
    """A call that must not wait would have had to; nothing was done."""


class CannotOpen(Exception):
    """The folder of a store cannot be opened; the text says why."""


class InUse(CannotOpen):
    """Another process has the folder open; the text says which."""
