"""Whether the names in a request are of the kind that its method is for: the templates of its URLs tell."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from t5x_harness.google.vertex.messages.kinds import verb_of
from t5x_harness.google.vertex.wire.errors import ApiError, Violation
from t5x_harness.google.vertex.wire.rpc_table import Rpc

__all__ = ["check_names"]

_VARIABLE = re.compile(r"\{([\w.]+)=([^}]+)\}")


def check_names(rpc: Rpc, request: Any) -> None:
    """Refuses a name that no resource of the method's kind can have.

    Args:
      rpc: the method.
      request: to it.

    Raises:
      ApiError: INVALID_ARGUMENT, with what the name has to be like.
    """
    bound = _bound(rpc)
    if bound and not any(all(_fits(request, *each) for each in fields.items()) for fields in bound):
        wrong = [field for field in bound[0].items() if not _fits(request, *field)]
        raise ApiError.of_violations(
            Violation(field, f"{_value(request, field)!r} is not the name of {_noun(rpc, field)}: {template}")
            for field, template in wrong
        )


def _noun(rpc: Rpc, field: str) -> str:
    found = verb_of(rpc)
    if found is None or field.rpartition(".")[2] != "name":
        return "what it is for"
    return f"{'an' if found[1].name[0] in 'AE' else 'a'} {found[1].name}"


@functools.cache
def _bound(rpc: Rpc) -> tuple[Mapping[str, str], ...]:
    """The fields that each of a method's URLs holds, with their templates."""
    return tuple(dict(_VARIABLE.findall(binding.template)) for binding in rpc.bindings)


def _fits(request: Any, field: str, template: str) -> bool:
    return _pattern(template).fullmatch(_value(request, field)) is not None


def _value(request: Any, field: str) -> str:
    value = request
    for step in field.split("."):
        value = getattr(value, step)
    text: str = value
    return text


@functools.cache
def _pattern(template: str) -> re.Pattern[str]:
    # A resource's parts are kept below its name and a number sign, which no name has.
    return re.compile(re.escape(template).replace(r"\*\*", r"[^#]+").replace(r"\*", r"[^/#]+"))
