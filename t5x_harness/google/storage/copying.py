"""Making an object of others: a copy of one, or up to 32 put together."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from t5x_harness.google.storage.core import Core
from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.reading import ObjectReader, open_object
from t5x_harness.google.storage.values import Checksums, ObjectFields, Preconditions, SourceObject, StoredObject
from t5x_harness.google.storage.writing import ObjectWriter

MOST_SOURCES = 32


def compose(
    core: Core,
    bucket: str,
    name: str,
    sources: Sequence[SourceObject],
    fields: ObjectFields,
    preconditions: Preconditions,
) -> StoredObject:
    """Puts objects of one bucket together, one after the other.

    The result has no MD5, as with Google, and counts its components through all compositions.

    Raises:
      Invalid: there are none or too many sources, or one is in another bucket.
      NotFound: there is no such bucket, source or generation.
      PreconditionFailed, NotModified: a condition does not hold.
    """
    if not 1 <= len(sources) <= MOST_SOURCES:
        raise Invalid(f"The number of source components provided ({len(sources)}) must be between 1 and {MOST_SOURCES}")
    if any(source.bucket != bucket for source in sources):
        raise Invalid(f"Objects are composed of objects of the same bucket, {bucket}")
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(open_object(core, source)) for source in sources]
        components = sum(reader.object.component_count or 1 for reader in readers)
        with ObjectWriter(core, bucket, name, fields, preconditions, md5=False, component_count=components) as writer:
            _pour(readers, writer)
            return writer.commit()


def copy(
    core: Core,
    source: SourceObject,
    bucket: str,
    name: str,
    fields: ObjectFields | None,
    preconditions: Preconditions,
) -> StoredObject:
    """Copies an object.

    Args:
      fields: of the copy; None takes those of the source.

    Raises:
      NotFound: there is no such bucket, source or generation.
      PreconditionFailed, NotModified: a condition does not hold.
    """
    with open_object(core, source) as reader:
        it = reader.object
        fields = it.fields if fields is None else fields
        with ObjectWriter(
            *(core, bucket, name, fields, preconditions),
            md5=it.md5 is not None,
            component_count=it.component_count,
        ) as writer:
            _pour([reader], writer)
            return writer.commit(Checksums(crc32c=it.crc32c))


def _pour(readers: Sequence[ObjectReader], writer: ObjectWriter) -> None:
    for reader in readers:
        for data in reader.chunks():
            writer.write(data)
