"""What filters of this service know beside the fields of messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from t5x_harness.google.vertex.metadata import links
from t5x_harness.google.vertex.metadata.kinds import ARTIFACT, EXECUTION
from t5x_harness.google.vertex.metadata.schemas import title_of
from t5x_harness.google.vertex.services import FilterFunction, Services
from t5x_harness.google.vertex.wire.errors import ApiError, Code


def _in_context(services: Services, node: Any, arguments: Sequence[str]) -> bool:
    """``in_context("NAME")``: whether an artifact or an execution is in a context."""
    if len(arguments) != 1 or node.DESCRIPTOR.name not in (ARTIFACT.noun, EXECUTION.noun):
        message = "in_context takes the full name of one context, and is for artifacts and executions"
        raise ApiError(Code.INVALID_ARGUMENT, f"Invalid filter: {message}")
    return arguments[0] in links.contexts_of(services, node.name)


def _child_contexts(services: Services, context: Any, arguments: Sequence[str]) -> bool:
    """``child_contexts:"NAME"``: whether a context is a parent of another."""
    operator, wanted = arguments
    if operator != ":":
        raise ApiError(Code.INVALID_ARGUMENT, "Invalid filter: child_contexts can be asked for with `:` only")
    found = links.children(services, context.name)
    return bool(found) if wanted == "*" else wanted in found


def _schema_title(services: Services, schema: Any, arguments: Sequence[str]) -> bool:
    """``schema_title="system.*"``: whether a schema has a title, in which ``*`` stands for anything."""
    operator, wanted = arguments
    if operator not in ("=", "!=", ":"):
        raise ApiError(Code.INVALID_ARGUMENT, "Invalid filter: schema_title can be asked for with =, != and : only")
    pattern = re.escape(wanted).replace(r"\*", ".*")
    return bool(re.fullmatch(pattern, title_of(schema))) == (operator != "!=")


FILTERS: Mapping[str, FilterFunction] = {
    "in_context": _in_context,
    "Context.child_contexts": _child_contexts,
    "MetadataSchema.schema_title": _schema_title,
}
