"""What is asked about fields of messages where releases of protobuf do not have the same name for it."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor

__all__ = ["is_repeated"]


def is_repeated(field: Any) -> bool:
    """Whether a field has many values, as lists and maps have.

    Args:
      field: its ``FieldDescriptor``. From protobuf 7 on it has no ``label`` any more; before 6.31, and so where the
        SDK's extra ``autologging`` asks for protobuf 5, it has no ``is_repeated`` yet.
    """
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED)
