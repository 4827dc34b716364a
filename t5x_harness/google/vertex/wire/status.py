"""Errors as google.rpc.Status, which clients of both transports and operations read."""

from __future__ import annotations

from google.rpc import error_details_pb2, status_pb2

from t5x_harness.google.vertex.wire.errors import ApiError


def to_status(error: ApiError) -> status_pb2.Status:
    status = status_pb2.Status(code=error.code.number, message=error.message)
    if error.violations:
        violations = [
            error_details_pb2.BadRequest.FieldViolation(field=each.field, description=each.message)
            for each in error.violations
        ]
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=violations))
    return status
