"""Which location a request is for, and which one a host has."""

from __future__ import annotations

import re
from typing import Any

from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.names import location_of
from t5x_harness.google.vertex.messages.paths import is_repeated
from t5x_harness.google.vertex.wire.errors import ApiError, Violation

__all__ = ["check_location", "named_resource"]

_HOST = re.compile(r"(?:(?P<region>[a-z0-9-]+)-)?aiplatform(?:\.mtls)?\.googleapis\.com")
_WITHOUT_REGION = ("us-central1", "global")


def named_resource(request: Message) -> tuple[str, str]:
    """The field of a request that names a resource first, and that name; both empty if there is none.

    A resource that a request holds is looked into last: ``custom_job.name``.
    """
    held: list[tuple[str, Any]] = []
    for field, value in request.ListFields():
        if is_repeated(field):
            continue
        if field.type == field.TYPE_STRING and location_of(value):
            return field.name, value
        if field.message_type is not None and "name" in field.message_type.fields_by_name:
            held.append((field.name, value))
    return next(((f"{name}.name", value.name) for name, value in held if location_of(value.name)), ("", ""))


def check_location(request: Message, host: str) -> None:
    """Refuses a request whose location is not its host's.

    Args:
      request: any.
      host: that it was sent to, without a port. One that is not Vertex AI's own has every location.

    Raises:
      ApiError: INVALID_ARGUMENT, as the service has it.
    """
    found = _HOST.fullmatch(host)
    field, name = named_resource(request) if found else ("", "")
    if found is None or not field:
        return
    allowed = (found["region"],) if found["region"] else _WITHOUT_REGION
    if location_of(name) not in (*allowed, "-"):
        message = f"The provided location ID doesn't match the endpoint. The valid location ID is `{allowed[0]}`."
        raise ApiError.of_violations([Violation(field, message)])
