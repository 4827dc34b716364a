"""Buckets and objects as the JSON API shows them."""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any
from urllib.parse import quote

from t5x_harness.google.identity import PROJECT_NUMBER
from t5x_harness.google.storage.values import Bucket, StoredObject

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_IN_NAMES = "!#$&'*+^`|"
"""Characters of header names other than letters, digits and ``-._~``."""


def rfc3339(microseconds: int) -> str:
    """Returns a time in Google's format, to the millisecond."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"{_date_and_time(seconds)}.{rest // 1000:03}Z"


@functools.lru_cache(256)  # objects are often written, and listed, many in a second
def _date_and_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()


def http_time(microseconds: int) -> str:
    return formatdate(microseconds // 1_000_000, usegmt=True)


def header_text(text: str) -> str:
    """Returns a text as the value of a header: its UTF-8, with control characters quoted as in URLs."""
    return _CONTROL.sub(lambda found: quote(found[0]), text).strip().encode().decode("latin-1")


def header_name(text: str) -> str:
    """Returns a text as (part of) the name of a header, with all other characters quoted as in URLs."""
    return quote(text, safe=_IN_NAMES)


FIELDS: Mapping[str, str] = {
    "contentType": "content_type",
    "contentEncoding": "content_encoding",
    "contentDisposition": "content_disposition",
    "contentLanguage": "content_language",
    "cacheControl": "cache_control",
    "customTime": "custom_time",
    "storageClass": "storage_class",
    "metadata": "metadata",
}
"""The fields of objects that clients set, by their JSON names."""

HEADER_FIELDS: Mapping[str, str] = {
    name.replace("_", "-"): name
    for name in ("content_encoding", "content_disposition", "content_language", "cache_control")
}
"""The fields of objects that are headers of requests and answers with the same name."""

POLICY = "emulatedPolicy"
"""The field that keeps a bucket's IAM policy, which its resource does not show."""


PROJECT_FIELD = "projectNumber"
"""The field with the project that made a bucket; the session's project if no client made it."""


def etag_of(found: StoredObject | Bucket) -> str:
    """Returns a tag that changes with every generation and metageneration."""
    version = f"{getattr(found, 'generation', 0)}/{found.metageneration}"
    return base64.b64encode(version.encode()).decode()


def xml_etag_of(found: StoredObject) -> str:
    """Returns the XML API's tag: the MD5 in hexadecimal, or for a composed object without MD5 the JSON API's tag."""
    return etag_of(found) if found.md5 is None else base64.b64decode(found.md5).hex()


def bucket_resource(bucket: Bucket, origin: str) -> dict[str, Any]:
    """Returns a bucket's resource, in which the client's fields override the defaults."""
    time = rfc3339(bucket.created)
    location = bucket.fields.get("location")
    regional = isinstance(location, str) and "-" in location  # other locations are US, EU, ASIA, and codes such as NAM4
    return {
        "location": "US",
        "locationType": "region" if regional else "multi-region",
        "storageClass": "STANDARD",
        "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}, "publicAccessPrevention": "inherited"},
        **{name: value for name, value in bucket.fields.items() if name != POLICY},
        "kind": "storage#bucket",
        "id": bucket.name,
        "name": bucket.name,
        "selfLink": f"{origin}/storage/v1/b/{quote(bucket.name, safe='')}",
        PROJECT_FIELD: bucket.fields.get(PROJECT_FIELD, PROJECT_NUMBER),
        "metageneration": str(bucket.metageneration),
        "etag": etag_of(bucket),
        "timeCreated": time,
        "updated": time,
    }


def object_resource(found: StoredObject, origin: str) -> dict[str, Any]:
    path = f"storage/v1/b/{quote(found.bucket, safe='')}/o/{quote(found.name, safe='')}"
    fields, created = found.fields, rfc3339(found.created)
    optional: Mapping[str, Any] = {
        **{theirs: getattr(fields, ours) for theirs, ours in FIELDS.items()},
        "metadata": dict(fields.metadata) if fields.metadata else None,
        "md5Hash": found.md5,
        "componentCount": found.component_count,
    }
    return {
        **{name: value for name, value in optional.items() if value is not None},
        "kind": "storage#object",
        "id": f"{found.bucket}/{found.name}/{found.generation}",
        "selfLink": f"{origin}/{path}",
        "mediaLink": f"{origin}/download/{path}?generation={found.generation}&alt=media",
        "name": found.name,
        "bucket": found.bucket,
        "generation": str(found.generation),
        "metageneration": str(found.metageneration),
        "contentType": fields.content_type or "application/octet-stream",
        "storageClass": fields.storage_class or "STANDARD",
        "size": str(found.size),
        "crc32c": found.crc32c,
        "etag": etag_of(found),
        "timeCreated": created,
        "updated": rfc3339(found.updated),
        "timeStorageClassUpdated": created,
    }
