"""Addresses in buckets: ``gs://bucket/name``, and ``/gcs/bucket/name`` where a job's buckets are mounted.

Gin, in T5X's main, opens files with Python and so reads only ``/gcs/``. TensorFlow, orbax and tensorstore use
``gs://``, which needs no file system that can rename and append.
"""

import re

GS = "gs://"
GCS = "/gcs/"

OUTSIDE_A_TREE = ("", ".", "..")
"""Parts of a path that are not the name of anything below a folder."""

_BUCKET = re.compile(r"[a-z0-9][-_.a-z0-9]*[a-z0-9]")
_IP_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
_MOUNTED = re.compile(r"/(?:gcs|cns|bigstore)/[^/]*")


def mounted(address: str) -> str | None:
    """Returns an address in a bucket as a path of the job, ``/gcs/bucket/name``, or None for any other address."""
    if address.startswith(GS):
        return f"{GCS}{address.removeprefix(GS)}"
    return address if address.startswith(GCS) else None


def object_address(address: str) -> str | None:
    """Returns an address in a bucket as ``gs://bucket/name``, or None for any other address."""
    if address.startswith(GCS):
        return f"{GS}{address.removeprefix(GCS)}"
    return address if address.startswith(GS) else None


def bucket_and_name(address: str) -> tuple[str, str] | None:
    """Splits an address into its bucket and the object's name.

    Returns None for an address that is not in a bucket or names none, such as ``gs://`` or ``/gcs//folder``.
    """
    bucket, _, name = (object_address(address) or "").removeprefix(GS).partition("/")
    return (bucket, name) if bucket not in OUTSIDE_A_TREE else None


def bucket_of(address: str) -> str:
    """Returns the bucket that an address names, or an empty string if it names none."""
    return (bucket_and_name(address) or ("", ""))[0]


def mount_of(path: str) -> str | None:
    """Returns the folder at which Google's machines mount the storage that has ``path``; None for any other path."""
    found = _MOUNTED.match(path)
    return found and found[0]


def is_remote(path: str) -> bool:
    """Tells whether a path is in a bucket: by its address, or because Google's machines mount storage there."""
    return "://" in path or mount_of(path) is not None


def bucket_fault(name: str) -> str | None:
    """Returns the rule that a bucket's name breaks; None if Google would accept it."""
    longest = 222 if "." in name else 63
    if not 3 <= len(name) <= longest:
        return f"it must have 3 to {longest} characters, and has {len(name)}"
    if not _BUCKET.fullmatch(name):
        return "lower-case letters, digits, '-', '_' and '.' are allowed, with a letter or digit at both ends"
    if any(len(part) > 63 for part in name.split(".")):
        return "the parts between dots may have at most 63 characters"
    if _IP_ADDRESS.fullmatch(name):
        return "it must not be an IP address"
    if name.startswith("goog"):
        return "it must not begin with 'goog'"
    if "google" in name or "g00gle" in name:
        return "it must not contain 'google' or a misspelling of it"
    return None
