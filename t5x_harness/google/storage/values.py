"""The values of storage: buckets, objects, and the conditions of requests."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from t5x_harness.google.storage.errors import NotModified, PreconditionFailed


@dataclasses.dataclass(frozen=True)
class Bucket:
    """A bucket.

    Attributes:
      fields: the fields that the client set, such as location, storageClass and labels, as JSON values.
    """

    name: str  # without ``gs://``
    created: int  # microseconds since 1970
    metageneration: int = 1  # grows with each change of its fields
    fields: Mapping[str, object] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class ObjectFields:
    """The fields that a client may set on an object; None leaves a field unchanged in a patch, and unset in a write."""

    content_type: str | None = None
    content_encoding: str | None = None
    content_disposition: str | None = None
    content_language: str | None = None
    cache_control: str | None = None
    custom_time: str | None = None
    storage_class: str | None = None
    metadata: Mapping[str, str | None] | None = None

    def as_new(self) -> ObjectFields:
        """Returns the fields of a new object, without metadata that are None, which only a patch can remove."""
        if self.metadata is None or None not in self.metadata.values():
            return self
        kept = {name: value for name, value in self.metadata.items() if value is not None}
        return dataclasses.replace(self, metadata=kept or None)


@dataclasses.dataclass(frozen=True)
class Checksums:
    """The checksums of some bytes, found or expected by a client; None for one that is not known or not expected."""

    md5: str | None = None  # base64
    crc32c: str | None = None  # base64 of the big-endian checksum


@dataclasses.dataclass(frozen=True)
class StoredObject:
    """One generation of an object."""

    bucket: str
    name: str  # any name of 1 to 1024 bytes that Google accepts, including slashes
    generation: int  # microseconds, strictly growing in a store; new with every write
    metageneration: int  # 1 when written, grows with each patch
    size: int
    created: int  # microseconds since 1970
    updated: int  # microseconds since 1970 of the last patch
    md5: str | None  # base64; None for a composed object
    crc32c: str  # base64 of the big-endian checksum
    fields: ObjectFields
    component_count: int | None = None  # the number of objects that it was composed from; None if it was not composed

    @classmethod
    def of(cls, new: NewObject, generation: int, size: int, checksums: Checksums) -> StoredObject:
        """Returns a generation as it is first written."""
        numbers = generation, 1, size, generation, generation
        sums = checksums.md5, checksums.crc32c or ""
        return cls(new.bucket, new.name, *numbers, *sums, new.fields.as_new(), new.component_count)


@dataclasses.dataclass(frozen=True)
class ListingQuery:
    """A query for objects of a bucket."""

    prefix: str = ""
    delimiter: str = ""  # of any length; names that have it after the prefix are cut after it and become prefixes
    match_glob: str | None = None
    start_offset: str = ""  # the first name that may be listed
    end_offset: str | None = None  # the name before which the listing ends
    include_trailing_delimiter: bool = False  # also lists a name that ends in its first delimiter as an object
    page_token: str | None = None
    max_results: int = 1000  # objects and prefixes together; at most 1000


@dataclasses.dataclass(frozen=True)
class Listing:
    """A page of a listing."""

    objects: tuple[StoredObject, ...]  # in the order of their UTF-8 names
    prefixes: tuple[str, ...] = ()  # names cut after the delimiter, each once, in order
    next_page: str | None = None


DOES_NOT_HOLD = "At least one of the pre-conditions you specified did not hold"


@dataclasses.dataclass(frozen=True)
class Preconditions:
    """The four conditions of a request; generation 0 stands for an object that does not exist.

    A request may also name a generation, which then has to be the live one; None stands for any.
    """

    generation_match: int | None = None
    generation_not_match: int | None = None
    metageneration_match: int | None = None
    metageneration_not_match: int | None = None
    generation: int | None = None

    def check(self, found: StoredObject | Bucket | None) -> None:
        """Checks the conditions on a live object or a bucket; None stands for one that does not exist.

        Raises PreconditionFailed for a number that had to match, and NotModified for one that must not match.
        """
        generation = found.generation if isinstance(found, StoredObject) else 0
        metageneration = found.metageneration if found is not None else None
        for wanted, actual, what in (
            (self.generation_match, generation, "generation"),
            (self.metageneration_match, metageneration, "metageneration"),
        ):
            if wanted is not None and wanted != actual:
                shown = actual if found is not None else "of nothing"
                raise PreconditionFailed(f"{DOES_NOT_HOLD}: {what} {shown} is not {wanted}")
        if found is None and (unwanted := self.generation_not_match):
            none = f"there is no generation other than {unwanted}, because there is no object"
            raise PreconditionFailed(f"{DOES_NOT_HOLD}: {none}")
        for unwanted, actual in (
            (self.generation_not_match, generation),
            (self.metageneration_not_match, metageneration),
        ):
            if unwanted is not None and unwanted == actual:
                raise NotModified("the object is still as it was")


ANY = Preconditions()


class SourceObject(NamedTuple):
    """An object to copy, to move or to compose from."""

    bucket: str
    name: str
    preconditions: Preconditions = ANY


@dataclasses.dataclass(frozen=True)
class NewObject:
    """An object that is to be written."""

    bucket: str
    name: str
    fields: ObjectFields = ObjectFields()
    preconditions: Preconditions = ANY  # conditions on the object that has the name when it is written
    component_count: int | None = None  # the number of components of a composed object


@dataclasses.dataclass(frozen=True)
class Upload:
    """The state of a resumable upload."""

    id: str
    bucket: str
    name: str
    fields: ObjectFields
    preconditions: Preconditions  # checked when it starts and again when it ends
    expected: Checksums  # checksums that the client announced at the start
    received: int  # the number of kept bytes; all of them survive a broken connection and a killed server
    finished: StoredObject | None = None  # the object that this upload became; None until then


@dataclasses.dataclass(frozen=True)
class UploadPart:
    """A part of a multipart upload."""

    number: int  # 1 to 10000; the object has its parts in this order
    size: int
    updated: int  # microseconds since 1970
    checksums: Checksums
    body: str  # the name of its file

    @property
    def etag(self) -> str:
        """The name of the part when the client completes the upload: the MD5 in hexadecimal, without quotes."""
        return base64.b64decode(self.checksums.md5 or "").hex()


@dataclasses.dataclass(frozen=True)
class MultipartUpload:
    """The state of a multipart upload of the XML API."""

    id: str
    bucket: str
    name: str
    fields: ObjectFields
    started: int  # microseconds since 1970
    parts: tuple[UploadPart, ...] = ()  # by number
