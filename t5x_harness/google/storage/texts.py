"""The columns of the database that hold JSON."""

from __future__ import annotations

import dataclasses
import functools
import json

from t5x_harness.google.storage.values import Checksums, ObjectFields, Preconditions, StoredObject


def to_text(value: Preconditions | Checksums | StoredObject) -> str:
    """Returns the fields of a value as JSON."""
    return to_json(dataclasses.asdict(value))


def fields_to_text(fields: ObjectFields) -> str:
    """Returns the fields that a client has set as JSON, or an empty string if there are none."""
    return _remembered_text(fields) if fields.metadata is None else _make_text(fields)


def _make_text(fields: ObjectFields) -> str:
    given = {name: value for name, value in vars(fields).items() if value is not None}
    return to_json(given) if given else ""


def fields_of(text: str) -> ObjectFields:
    """Reads what ``fields_to_text`` wrote."""
    return _make_fields(text) if '"metadata"' in text else _remembered_fields(text)


def _make_fields(text: str) -> ObjectFields:
    return ObjectFields(**json.loads(text)) if text else ObjectFields()


def to_json(value: object) -> str:
    """Returns JSON that an answer can repeat.

    Raises:
      ValueError: the value has text that is not Unicode, or a number that JSON does not have.
    """
    text = json.dumps(value, default=dict, ensure_ascii=False, allow_nan=False)
    text.encode()
    return text


# Most objects have one of a few content types and no other field. Metadata are mutable, and must not be shared.
_remembered_text = functools.lru_cache(1024)(_make_text)
_remembered_fields = functools.lru_cache(1024)(_make_fields)
