"""The names that Google allows for buckets and objects."""

from __future__ import annotations

from t5x_harness.buckets.addresses import bucket_fault
from t5x_harness.google.storage.errors import Invalid

LONGEST_OBJECT_NAME = 1024  # bytes of UTF-8
_CHALLENGES = ".well-known/acme-challenge/"


def check_bucket_name(name: str) -> None:
    """Raises Invalid, with the broken rule, for a bucket name that Google would refuse."""
    if fault := bucket_fault(name):
        raise Invalid(f"Invalid bucket name: '{name}': {fault}", code="InvalidBucketName")


def is_bucket_name(name: str) -> bool:
    """Tells whether Google accepts the name for a bucket."""
    return bucket_fault(name) is None


def check_object_name(name: str) -> None:
    """Raises Invalid, with the broken rule, for an object name that Google would refuse."""
    if fault := _object_fault(name):
        raise Invalid(f"Invalid object name: {name[:80]!r}: {fault}")


def is_object_name(name: str) -> bool:
    """Tells whether Google accepts the name for an object."""
    return _object_fault(name) is None


def _object_fault(name: str) -> str | None:
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        return "it is not Unicode text"
    if not 1 <= length <= LONGEST_OBJECT_NAME:
        return f"it must have 1 to {LONGEST_OBJECT_NAME} bytes of UTF-8, and has {length}"
    if "\r" in name or "\n" in name:
        return "it must not contain a carriage return or a line feed"
    if name in (".", ".."):
        return "it must not be '.' or '..'"
    if name.startswith(_CHALLENGES):
        return f"it must not begin with '{_CHALLENGES}'"
    return None
