"""Parameters and JSON of requests as values of the store, and buckets and objects as the JSON API shows them."""

import base64
import dataclasses
import functools
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from t5x_harness.google.identity import PROJECT_NUMBER
from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.values import (
    ANY,
    Bucket,
    Checksums,
    ListingQuery,
    ObjectFields,
    Preconditions,
    StoredObject,
)

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)", re.ASCII)


def rfc3339(microseconds: int) -> str:
    """Returns a time in Google's format, to the millisecond."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"{_date_and_time(seconds)}.{rest // 1000:03}Z"


@functools.lru_cache(256)  # often, many objects are written or listed within a second
def _date_and_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()


def header_text(text: str) -> str:
    """Returns a text as the value of a header: its UTF-8, with control characters quoted as in URLs."""
    return _CONTROL.sub(lambda found: quote(found[0]), text).strip().encode().decode("latin-1")


FIELDS: Mapping[str, str] = {
    re.sub("_(.)", lambda found: found[1].upper(), field.name): field.name for field in dataclasses.fields(ObjectFields)
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
        "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": False}, "publicAccessPrevention": "inherited"},
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


_CONDITIONS = ("ifGenerationMatch", "ifGenerationNotMatch", "ifMetagenerationMatch", "ifMetagenerationNotMatch")
_MOST_DIGITS = 19
_SOURCE_CONDITIONS = tuple(name.replace("if", "ifSource") for name in _CONDITIONS)


def preconditions_of(parameters: Mapping[str, str], source: bool = False) -> Preconditions:
    """Returns the conditions of a request, or with ``source`` those on the source of a copy, ``ifSource…``."""
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
    """Returns the fields of an object's resource, with the media's type if the resource has none.

    Raises Invalid if a field or the metadata are not text, or the custom time is none.
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
    if "custom_time" in known and not _is_time(known["custom_time"]):
        raise Invalid(f"customTime has to be a time such as 2026-11-28T12:00:00Z, not {_shown(known['custom_time'])}")
    if content_type and "content_type" not in known:
        known["content_type"] = content_type
    return ObjectFields(**known)


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return _TIME.fullmatch(text) is not None


def checksums_of(resource: Mapping[str, Any], headers: Mapping[str, str]) -> Checksums:
    """Returns the checksums that the resource or the headers announce; raises Invalid if one is not text."""
    given = dict(part.strip().partition("=")[::2] for part in headers.get("x-goog-hash", "").split(",") if part)
    md5 = text_of(resource, "md5Hash") or given.get("md5") or headers.get("content-md5")
    return Checksums(md5 or None, text_of(resource, "crc32c") or given.get("crc32c") or None)


def text_of(resource: Mapping[str, Any], name: str, shown: str = "") -> str | None:
    """Returns a text in a resource, or None; raises Invalid, which calls it ``shown``, if it is not text."""
    value = resource.get(name)
    if value is not None and not isinstance(value, str):
        raise Invalid(f"{shown or name} has to be text, not {_shown(value)}")
    return value


def count_of(digits: str) -> int:
    """Returns a number of bytes in a header, which may have any number of digits."""
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
