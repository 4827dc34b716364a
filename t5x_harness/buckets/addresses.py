"""Addresses in buckets: ``gs://bucket/name``, and ``/gcs/bucket/name`` where a job's buckets are mounted.

Gin, in T5X's main, opens files with Python and so reads only ``/gcs/``. TensorFlow, orbax and tensorstore use
``gs://``, which needs no file system that can rename and append.
"""

from __future__ import annotations

import re

GS = "gs://"
GCS = "/gcs/"

OUTSIDE_A_TREE = ("", ".", "..")
"""Parts of a path that are not the name of anything below a folder."""

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
    """Returns the folder where Google's machines mount the storage that has ``path``; None for any other path."""
    found = _MOUNTED.match(path)
    return found and found[0]


def is_remote(path: str) -> bool:
    """Tells whether a path lies in a bucket: by its address, or because Google's machines mount it there."""
    return "://" in path or mount_of(path) is not None
