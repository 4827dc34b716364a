"""Blobs: objects in the project's bucket, which clients write themselves and read through the service.

The blobs of a time series are at ``BUCKET/tensorboard-TENSORBOARD/EXPERIMENT/RUN/TIME_SERIES/BLOB_ID``.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from t5x_harness.google.vertex.services import Services
from t5x_harness.google.vertex.wire.errors import ApiError, StatusCode, invalid_field

_NAMESPACE = uuid.UUID("6b1f0c1e-52c9-4d0e-9b0a-0d3b6b5c3f5a")


def blob_bucket(location: str) -> str:
    """Returns the bucket for the blobs of all Tensorboards in a location.

    Args:
      location: the location's full name, such as ``projects/1/locations/us-central1``.
    """
    return f"cloud-ai-platform-{uuid.uuid5(_NAMESPACE, location)}"


def make_bucket(services: Services, bucket: str) -> None:
    """Creates a bucket, which may exist."""
    _folder(services, bucket).mkdir(parents=True, exist_ok=True)


def read_blob(services: Services, prefix: str, series: str, blob_id: str) -> bytes:
    """Returns the bytes of a blob.

    Args:
      services: have the object store.
      prefix: the Tensorboard's ``blob_storage_path_prefix``.
      series: the full name of the time series.
      blob_id: the blob's id in a point.

    Raises:
      ApiError: INVALID_ARGUMENT: the id is not valid. NOT_FOUND: there is no such object.
    """
    path = _path(services, prefix, series, blob_id)
    try:
        return path.read_bytes()
    except OSError:
        place = f"gs://{path.relative_to(_folder(services, ''))}"
        raise ApiError(
            StatusCode.NOT_FOUND, f"The blob {blob_id} of {series} was not found: there is no {place}"
        ) from None


def write_blob(services: Services, prefix: str, series: str, blob_id: str, data: bytes) -> None:
    """Writes a blob as a client would; for the arguments see :func:`read_blob`."""
    path = _path(services, prefix, series, blob_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def is_blob_id(blob_id: str) -> bool:
    """Returns whether an id can be the last part of an object's name."""
    return bool(blob_id) and blob_id not in (".", "..") and not set(blob_id) & set("/\0")


def _path(services: Services, prefix: str, series: str, blob_id: str) -> Path:
    if not is_blob_id(blob_id):
        raise invalid_field("blob_ids", f"{blob_id!r} is not a URI safe key")
    tensorboard, experiment, run, time_series = series.split("/")[5::2]
    return _folder(services, prefix) / f"tensorboard-{tensorboard}" / experiment / run / time_series / blob_id


def _folder(services: Services, prefix: str) -> Path:
    """Returns the folder in which the object store keeps a bucket, or a folder of one."""
    return services.settings.root / "buckets" / prefix
