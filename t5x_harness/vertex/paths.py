"""The two forms of an object's address: ``gs://bucket/name``, and ``/gcs/bucket/name`` where a job's bucket is mounted.

Gin, in T5X's main, opens files by Python and so reads only ``/gcs/``; TensorFlow, orbax and tensorstore go to
``gs://``, where they need no file system that can rename and append.
"""

from __future__ import annotations

GS = "gs://"
GCS = "/gcs/"


def mounted(address: str) -> str | None:
    """Returns an address in a bucket as a path of the job: ``/gcs/bucket/name``.

    None for anything that is in no bucket.
    """
    if address.startswith(GS):
        return f"{GCS}{address.removeprefix(GS)}"
    return address if address.startswith(GCS) else None


def object_address(address: str) -> str | None:
    """Returns an address in a bucket as ``gs://bucket/name``; None for anything that is in no bucket."""
    if address.startswith(GCS):
        return f"{GS}{address.removeprefix(GCS)}"
    return address if address.startswith(GS) else None


def bucket_of(address: str) -> str:
    """Returns the bucket that an address names; empty where it names none, as ``gs://`` and ``/gcs//folder`` do."""
    return (object_address(address) or "").removeprefix(GS).partition("/")[0]
