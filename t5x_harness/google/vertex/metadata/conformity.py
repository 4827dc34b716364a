"""What a schema asks of metadata: that required properties are there and, if it is strict, no others.

The service documents these two; it takes values of any type, whatever type a schema names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["violations"]


def violations(schema: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yields what is wrong with metadata, one sentence for each property.

    Args:
      schema: as the YAML of a MetadataSchema reads.
      metadata: of a node, as JSON has it.
    """
    properties = schema.get("properties") or {}
    if schema.get("additionalProperties") is False:
        for name in metadata:
            if name not in properties:
                yield f"{name!r} is none of the schema's properties ({', '.join(properties)}), and it takes no others."
    yield from _missing(schema, metadata, ())


def _missing(schema: Mapping[str, Any], value: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for name in schema.get("required") or ():
        if name not in value:
            yield f"{'.'.join((*path, name))!r} is required by the schema."
    for name, inner in (schema.get("properties") or {}).items():
        if isinstance(inner, Mapping) and isinstance(value.get(name), Mapping):
            yield from _missing(inner, value[name], (*path, name))
