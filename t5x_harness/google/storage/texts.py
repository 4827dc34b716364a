"""The columns of the database that hold JSON."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

from t5x_harness.google.storage.values import Checksums, ObjectFields, Preconditions, StoredObject


def to_text(value: Preconditions | Checksums | StoredObject) -> str:
    """Returns the fields of a value as JSON."""
    return to_json(dataclasses.asdict(value))


def fields_to_text(fields: ObjectFields) -> str:
    """Returns what a client has said of an object as JSON; the empty text for nothing."""
    return _remembered_text(fields) if fields.metadata is None else _make_text(fields)


def _make_text(fields: ObjectFields) -> str:
    said = {name: value for name, value in vars(fields).items() if value is not None}
    return to_json(said) if said else ""


def fields_of(text: str) -> ObjectFields:
    """Reads what ``fields_to_text`` wrote."""
    return _make_fields(text) if '"metadata"' in text else _remembered_fields(text)


def _make_fields(text: str) -> ObjectFields:
    return ObjectFields(**sound(from_json(text))) if text else ObjectFields()


def sound(fields: dict[str, Any]) -> dict[str, Any]:
    """Drops what other releases took that is not text, and that no answer could say."""
    metadata = fields.get("metadata")
    return {name: value for name, value in fields.items() if isinstance(value, str) or (value is metadata and metadata)}


def to_json(value: object) -> str:
    """Returns the JSON that will be answered: what no answer could say cannot be stored.

    Raises:
      ValueError: it has text that is not Unicode, or a number that JSON does not have.
    """
    text = json.dumps(value, default=dict, ensure_ascii=False, allow_nan=False)
    text.encode()
    return text


def from_json(text: str) -> Any:
    """Reads what ``to_json`` wrote, here or in another release."""
    value = json.loads(text)
    if "\\ud" in text.lower():  # other releases wrote ASCII, and halves of surrogate pairs in it
        value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    return value


# Most objects have one of a few content types, and nothing else; metadata are a dictionary, which nobody may share.
_remembered_text = functools.lru_cache(1024)(_make_text)
_remembered_fields = functools.lru_cache(1024)(_make_fields)
