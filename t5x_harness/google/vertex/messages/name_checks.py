"""Whether the names in a request fit its method and its host."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.kinds import verb_of
from t5x_harness.google.vertex.messages.names import location_of
from t5x_harness.google.vertex.messages.paths import is_repeated
from t5x_harness.google.vertex.wire.errors import ApiError, FieldViolation, invalid_field
from t5x_harness.google.vertex.wire.rpc_table import Rpc

_HOST = re.compile(r"(?:(?P<region>[a-z0-9-]+)-)?aiplatform(?:\.mtls)?\.googleapis\.com")
_WITHOUT_REGION = ("us-central1", "global")


def named_resource(request: Message) -> tuple[str, str]:
    """Returns the field of a request that names a resource first, and that name; both empty if there is none.

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
        raise invalid_field(field, message)


_VARIABLE = re.compile(r"\{([\w.]+)=([^}]+)\}")


def check_names(rpc: Rpc, request: Any) -> None:
    """Raises ApiError for a name that no resource of the method's kind can have, with what it has to be like."""
    bound = _bound(rpc)
    if bound and not any(all(_fits(request, *each) for each in fields.items()) for fields in bound):
        wrong = [field for field in bound[0].items() if not _fits(request, *field)]
        raise ApiError.of_violations(
            FieldViolation(field, f"{_value(request, field)!r} is not the name of {_noun(rpc, field)}: {template}")
            for field, template in wrong
        )


def _noun(rpc: Rpc, field: str) -> str:
    found = verb_of(rpc)
    if found is None or field.rpartition(".")[2] != "name":
        return "what it is for"
    return f"{'an' if found[1].name[0] in 'AE' else 'a'} {found[1].name}"


@functools.cache
def _bound(rpc: Rpc) -> tuple[Mapping[str, str], ...]:
    """Returns the fields that each of a method's URLs holds, with their templates."""
    return tuple(dict(_VARIABLE.findall(binding.template)) for binding in rpc.bindings)


def _fits(request: Any, field: str, template: str) -> bool:
    return _pattern(template).fullmatch(_value(request, field)) is not None


def _value(request: Any, field: str) -> str:
    value = request
    for step in field.split("."):
        value = getattr(value, step)
    found: str = value
    return found


@functools.cache
def _pattern(template: str) -> re.Pattern[str]:
    # A resource's parts are kept below its name and a number sign, which no name has.
    return re.compile(re.escape(template).replace(r"\*\*", r"[^#]+").replace(r"\*", r"[^/#]+"))
