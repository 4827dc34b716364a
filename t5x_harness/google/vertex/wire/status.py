"""Errors as google.rpc.Status, for clients of both transports and for operations."""

from __future__ import annotations

from urllib.parse import quote

from google.rpc import error_details_pb2, status_pb2

from t5x_harness.google.vertex.wire.errors import ApiError, FieldViolation

# gRPC's clients accept 8 KiB of trailers. For larger ones they report RESOURCE_EXHAUSTED instead of the error.
_ROOM = 7000
_LONGEST_TEXT, _LONGEST_MESSAGE = 400, 1200
_MOST = 20


def to_status(error: ApiError) -> status_pb2.Status:
    """Returns an error with its violations as details."""
    status = status_pb2.Status(code=error.code.number, message=error.message)
    if error.violations:
        violations = [
            error_details_pb2.BadRequest.FieldViolation(field=each.field, description=each.message)
            for each in error.violations
        ]
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=violations))
    return status


def fit_for_trailer(error: ApiError) -> ApiError:
    """Shortens an error to fit into gRPC's trailers: cuts the middle of long texts, and counts the last violations."""
    if _size(error) <= _ROOM:
        return error
    if not error.violations:
        return ApiError(error.code, _without_middle(error.message, _LONGEST_MESSAGE))
    whole = [
        FieldViolation(_without_middle(each.field, _LONGEST_TEXT), _without_middle(each.message, _LONGEST_TEXT))
        for each in error.violations
    ]
    shown = min(len(whole), _MOST)
    while _size(shorter := _with_first(whole, shown)) > _ROOM and shown > 1:
        shown -= 1
    return shorter


def _with_first(violations: list[FieldViolation], number: int) -> ApiError:
    more = len(violations) - number
    rest = [FieldViolation("", f"{more} more, which REST lists: gRPC has no room for them")] if more else []
    return ApiError.of_violations([*violations[:number], *rest])


def _size(error: ApiError) -> int:
    """Returns the size of a trailer, whose text is percent-encoded and whose details are in base64."""
    details: int = to_status(error).ByteSize()
    return len(quote(error.message)) + details * 4 // 3


def _without_middle(text: str, longest: int) -> str:
    data = text.encode()
    if len(data) <= longest:
        return text
    head, end = (part.decode(errors="ignore") for part in (data[: longest // 2], data[-longest // 4 :]))
    return f"{head} … {len(text) - len(head) - len(end)} characters left out … {end}"
