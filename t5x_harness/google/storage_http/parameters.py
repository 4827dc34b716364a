"""Parameters and JSON of requests as values of the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.values import ANY, Checksums, ListingQuery, ObjectFields, Preconditions
from t5x_harness.google.storage_http.resources import FIELDS

_CONDITIONS = ("ifGenerationMatch", "ifGenerationNotMatch", "ifMetagenerationMatch", "ifMetagenerationNotMatch")
_MOST_DIGITS = 19
_SOURCE_CONDITIONS = tuple(name.replace("if", "ifSource") for name in _CONDITIONS)


def preconditions_of(parameters: Mapping[str, str], source: bool = False) -> Preconditions:
    """Returns the conditions of a request.

    Args:
      parameters: the parameters of the request.
      source: take the conditions on the source of a copy, ``ifSource…``.

    Raises:
      Invalid: a condition is not a number.
    """
    names = _SOURCE_CONDITIONS if source else _CONDITIONS
    if parameters.keys().isdisjoint(names):
        return ANY
    return Preconditions(*(number_of(parameters, name) for name in names))


def listing_of(parameters: Mapping[str, str]) -> ListingQuery:
    """Returns the query of a listing; raises Invalid for a bad number."""
    wanted = number_of(parameters, "maxResults")
    return ListingQuery(
        prefix=parameters.get("prefix", ""),
        delimiter=parameters.get("delimiter", ""),
        match_glob=parameters.get("matchGlob"),
        start_offset=parameters.get("startOffset", ""),
        end_offset=parameters.get("endOffset") or None,
        include_trailing_delimiter=parameters.get("includeTrailingDelimiter") == "true",
        page_token=parameters.get("pageToken") or None,
        max_results=1000 if wanted is None else min(wanted, 1000),
    )


def fields_of(resource: Mapping[str, Any], content_type: str | None = None) -> ObjectFields:
    """Returns the fields of an object's JSON resource.

    Args:
      resource: the resource.
      content_type: the type of the media, which counts if the resource names none.

    Raises:
      Invalid: a field is not text, or the metadata are not.
    """
    if not isinstance(resource, Mapping):
        raise Invalid(f"An object's resource has to be a JSON object, not {_shown(resource)}")
    known = {ours: resource[theirs] for theirs, ours in FIELDS.items() if resource.get(theirs) is not None}
    metadata = known.get("metadata")
    if metadata is not None and not (
        isinstance(metadata, dict) and all(isinstance(v, str | None) for v in metadata.values())
    ):
        raise Invalid("metadata has to be an object of texts")
    for theirs, ours in FIELDS.items():
        if ours != "metadata":
            text_of(known, ours, theirs)
    if content_type and "content_type" not in known:
        known["content_type"] = content_type
    return ObjectFields(**known)


def cleared_by(resource: Mapping[str, Any]) -> list[str]:
    """Returns the fields that a patch sets to null."""
    return [ours for theirs, ours in FIELDS.items() if theirs in resource and resource[theirs] is None]


def every_field() -> list[str]:
    """Returns all fields, which an update, unlike a patch, overwrites."""
    return list(FIELDS.values())


def checksums_of(resource: Mapping[str, Any], headers: Mapping[str, str]) -> Checksums:
    """Returns the checksums that the client announces in the resource or in headers.

    Raises:
      Invalid: a checksum is not text.
    """
    given = dict(part.strip().partition("=")[::2] for part in headers.get("x-goog-hash", "").split(",") if part)
    md5 = text_of(resource, "md5Hash") or given.get("md5") or headers.get("content-md5")
    return Checksums(md5 or None, text_of(resource, "crc32c") or given.get("crc32c") or None)


def text_of(resource: Mapping[str, Any], name: str, shown: str = "") -> str | None:
    """Returns a field of a resource that is text, or None if it is missing.

    Raises:
      Invalid: it is anything else; the message calls it ``shown``.
    """
    value = resource.get(name)
    if value is not None and not isinstance(value, str):
        raise Invalid(f"{shown or name} has to be text, not {_shown(value)}")
    return value


def count_of(digits: str) -> int:
    """Returns a number of bytes in a header, however many digits it has."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) < _MOST_DIGITS else 10**_MOST_DIGITS


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)[:80]


def hash_header(found: Checksums) -> str:
    """Returns the value of ``x-goog-hash``."""
    parts = (("crc32c", found.crc32c), ("md5", found.md5))
    return ",".join(f"{name}={value}" for name, value in parts if value)


def number_of(parameters: Mapping[str, str], name: str) -> int | None:
    """Returns a parameter as a number, or None if it is not given; raises Invalid if it is not a number."""
    text = parameters.get(name)
    if text is None or text == "":
        return None
    try:
        return int(text)
    except ValueError:
        raise Invalid(f"Invalid value for {name}: {text!r} is not a number") from None
