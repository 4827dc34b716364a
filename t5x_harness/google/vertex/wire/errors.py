"""Errors that a service answers with, in the words that Google has for them."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from typing import Self


class Code(enum.StrEnum):
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
        """As gRPC and google.rpc.Status count them."""
        return list(Code).index(self) + 1

    @property
    def http_status(self) -> int:
        return _HTTP[self]


_HTTP = {
    Code.CANCELLED: 499,
    Code.UNKNOWN: 500,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.DATA_LOSS: 500,
    Code.UNAUTHENTICATED: 401,
}


@dataclasses.dataclass(frozen=True)
class Violation:
    """One field of a request that a service does not take.

    Attributes:
      field: its path, such as ``job_spec.worker_pool_specs[0].replica_count``.
    """

    field: str
    message: str


class ApiError(Exception):
    """A request that is answered with an error.

    Attributes:
      violations: the fields it is about; clients find them in the error's details.
    """

    def __init__(self, code: Code, message: str, violations: Iterable[Violation] = ()) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.violations = tuple(violations)

    @classmethod
    def of_violations(cls, violations: Iterable[Violation]) -> Self:
        """Returns INVALID_ARGUMENT that lists all of them in one text, in the service's form."""
        listed = tuple(violations)
        found = (f"{count}.Field: {each.field}; Message: {each.message}\t" for count, each in enumerate(listed, 1))
        return cls(Code.INVALID_ARGUMENT, f"List of found errors:\t{''.join(found)}", listed)


class NotEmulated(ApiError):
    """A request for what Google has and the harness does not: UNIMPLEMENTED over gRPC.

    Over HTTP that would be 501, which clients take for a disturbance and repeat for half a minute, so it is answered
    there as Google answers for an API that a project does not have.
    """

    def __init__(self, message: str) -> None:
        super().__init__(Code.UNIMPLEMENTED, message)


def not_found(name: str) -> ApiError:
    """Returns the error of a resource that is not there."""
    return ApiError(Code.NOT_FOUND, f"The requested resource {name} was not found.")
