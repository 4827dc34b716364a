"""Checks of requests: whether names fit the method and the host, and whether times are valid."""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from google.protobuf.message import Message

from t5x_harness.google.vertex.messages.names import location_of, verb_of
from t5x_harness.google.vertex.messages.paths import is_map, is_repeated
from t5x_harness.google.vertex.wire.errors import ApiError, FieldViolation, invalid_field
from t5x_harness.google.vertex.wire.rpc_table import Rpc

_HOST = re.compile(r"(?:(?P<region>[a-z0-9-]+)-)?aiplatform(?:\.mtls)?\.googleapis\.com")
_WITHOUT_REGION = ("us-central1", "global")
_TIMES = ("google.protobuf.Duration", "google.protobuf.Timestamp")


def named_resource(request: Message) -> tuple[str, str]:
    """Returns the first field of a request that names a resource, and the name; both empty if there is none.

    Names inside resources (``custom_job.name``) come last.
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
    """Raises ApiError, in the service's words, if a request's location does not match its host, given without a port.

    A host that is not Vertex AI's own serves every location.
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
    """Raises ApiError, stating the correct form, for a name that no resource of the method's kind can have."""
    bound = _bound(rpc)
    if bound and not any(all(_fits(request, *each) for each in fields.items()) for fields in bound):
        wrong = [field for field in bound[0].items() if not _fits(request, *field)]
        found, violations = verb_of(rpc), []
        for field, template in wrong:
            noun = f"{'an' if found[1].name[0] in 'AE' else 'a'} {found[1].name}" if found else ""
            what = noun if noun and field.rpartition(".")[2] == "name" else "what it is for"
            violations.append(
                FieldViolation(field, f"{_value(request, field)!r} is not the name of {what}: {template}")
            )
        raise ApiError.of_violations(violations)


@functools.cache
def _bound(rpc: Rpc) -> tuple[Mapping[str, str], ...]:
    """Returns the fields in each of a method's URLs, with their templates."""
    return tuple(dict(_VARIABLE.findall(binding.template)) for binding in rpc.bindings)


def _fits(request: Any, field: str, template: str) -> bool:
    return _pattern(template).fullmatch(_value(request, field)) is not None


def _value(request: Any, field: str) -> str:
    value = request
    for step in field.split("."):
        value = getattr(value, step)
    return str(value)


@functools.cache
def _pattern(template: str) -> re.Pattern[str]:
    # The state stores parts of a resource under its name and a number sign, which no name may contain.
    return re.compile(re.escape(template).replace(r"\*\*", r"[^#]+").replace(r"\*", r"[^/#]+"))


def check_times(request: Message) -> None:
    """Raises ApiError (INVALID_ARGUMENT), with a list of them, if times or durations are out of protobuf's range.

    Protobuf's messages can hold some that neither JSON nor a clock can represent.
    """
    violations = []
    for at, message in _messages_in(request, ""):
        if message.DESCRIPTOR.full_name in _TIMES:
            try:
                message.ToJsonString()
            except ValueError as error:
                violations.append(FieldViolation(at, str(error)))
    if violations:
        raise ApiError.of_violations(violations)


def _messages_in(message: Any, at: str) -> Iterator[tuple[str, Any]]:
    """Yields a message and all values in it, each with its path."""
    yield at, message
    for field, value in message.ListFields():
        if field.message_type is not None:
            path = f"{at}.{field.name}" if at else field.name
            entries: Iterable[tuple[str, Any]] = [(path, value)]
            if is_map(field):
                entries = ((f"{path}[{key!r}]", each) for key, each in value.items())
            elif is_repeated(field):
                entries = ((f"{path}[{number}]", each) for number, each in enumerate(value))
            for where, each in entries:
                if isinstance(each, Message):
                    yield from _messages_in(each, where)
