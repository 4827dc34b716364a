"""Errors of the service, in Google's terms."""

import dataclasses
import enum
from collections.abc import Iterable
from typing import Self


class StatusCode(enum.StrEnum):
    """The canonical codes of gRPC and of Google's APIs."""

    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"
    DATA_LOSS = "DATA_LOSS"
    UNAUTHENTICATED = "UNAUTHENTICATED"

    @property
    def number(self) -> int:
        """The code's number in gRPC and google.rpc.Status."""
        return list(StatusCode).index(self) + 1

    @property
    def http_status(self) -> int:
        return _STATUSES[self.number - 1]


# In the order of the codes.
_STATUSES = (499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401)


@dataclasses.dataclass(frozen=True)
class FieldViolation:
    """A field of a request that is not valid.

    Attributes:
      field: the field's path, such as ``job_spec.worker_pool_specs[0].replica_count``.
      message: a description of the error.
    """

    field: str
    message: str


class ApiError(Exception):
    """The error that answers a request.

    Attributes:
      code: the error's code.
      message: the error's message.
      violations: the fields that are not valid, which clients find in the error's details.
    """

    def __init__(self, code: StatusCode, message: str, violations: Iterable[FieldViolation] = ()) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.violations = tuple(violations)

    @classmethod
    def of_violations(cls, violations: Iterable[FieldViolation]) -> Self:
        """Returns INVALID_ARGUMENT with all violations in one text, in the service's form."""
        listed = tuple(violations)
        found = (f"{count}.Field: {each.field}; Message: {each.message}\t" for count, each in enumerate(listed, 1))
        return cls(StatusCode.INVALID_ARGUMENT, f"List of found errors:\t{''.join(found)}", listed)


def invalid_argument(message: str) -> ApiError:
    """Returns INVALID_ARGUMENT."""
    return ApiError(StatusCode.INVALID_ARGUMENT, message)


def failed_precondition(message: str) -> ApiError:
    """Returns FAILED_PRECONDITION."""
    return ApiError(StatusCode.FAILED_PRECONDITION, message)


def invalid_field(field: str, message: str) -> ApiError:
    """Returns INVALID_ARGUMENT with one violation."""
    return ApiError.of_violations([FieldViolation(field, message)])


class ApiNotEmulated(ApiError):
    """A request for something that is not emulated: UNIMPLEMENTED over gRPC.

    Over HTTP that would be a 501, which clients treat as a temporary error and retry for half a minute. The answer over
    HTTP is therefore Google's answer for an API that is not enabled.
    """

    def __init__(self, message: str) -> None:
        super().__init__(StatusCode.UNIMPLEMENTED, message)


def not_found(name: str) -> ApiError:
    """Returns NOT_FOUND for a resource."""
    return ApiError(StatusCode.NOT_FOUND, f"The requested resource {name} was not found.")
