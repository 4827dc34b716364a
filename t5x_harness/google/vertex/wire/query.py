"""Parameters of a URL as fields of a request: nested by dots, repeated by being given again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf import field_mask_pb2, json_format

from t5x_harness.google.vertex.messages.kinds import snake_case
from t5x_harness.google.vertex.messages.paths import is_repeated
from t5x_harness.google.vertex.wire.errors import ApiError, Code, Violation

__all__ = ["set_parameters"]

_MASK = "google.protobuf.FieldMask"
_BOOLEANS = {"true": True, "false": False}


def set_parameters(message: Any, parameters: Iterable[tuple[str, str]]) -> None:
    """Sets the fields that parameters name, in JSON's spelling or in protobuf's.

    Raises:
      ApiError: INVALID_ARGUMENT, in the service's words: there is no such field, or it cannot have this value.
    """
    for name, value in parameters:
        owner, field = message, None
        for step in name.split("."):
            if field is not None:
                owner = getattr(owner, field.name) if field.message_type and not is_repeated(field) else None
            field = owner.DESCRIPTOR.fields_by_name.get(snake_case(step)) if owner is not None else None
            if field is None:
                raise _invalid(
                    name,
                    f"Unknown name \"{name}\": Cannot bind query parameter. Field '{name}' could not be found in "
                    "request message.",
                )
        _set(owner, field, name, value)


def _set(owner: Any, field: Any, name: str, value: str) -> None:
    if field.message_type is not None and field.message_type.full_name == _MASK:
        getattr(owner, field.name).CopyFrom(_mask(value))
        return
    if field.type == field.TYPE_BOOL and value not in _BOOLEANS:
        raise _invalid(name, f"Invalid value at '{name}' (TYPE_BOOL), \"{value}\"")
    told: Any = _BOOLEANS[value] if field.type == field.TYPE_BOOL else value
    if field.enum_type is not None and value.lstrip("-").isdigit():
        told = int(value)
    try:
        read = type(owner)()
        json_format.ParseDict({field.name: [told] if is_repeated(field) else told}, read)
    except json_format.ParseError as error:
        raise _invalid(name, f"Invalid value at '{name}': {error}") from None
    owner.MergeFrom(read)  # adds to a repeated field


def _mask(value: str) -> field_mask_pb2.FieldMask:
    """A mask of paths in either spelling."""
    return field_mask_pb2.FieldMask(paths=[path.strip() for path in value.split(",") if path.strip()])


def _invalid(name: str, what: str) -> ApiError:
    message = f"Invalid JSON payload received. {what}"
    return ApiError(Code.INVALID_ARGUMENT, message, [Violation(name, message)])
