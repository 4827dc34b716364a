"""Lists objects: the records and the files of the tree, merged in the order of the names' UTF-8 bytes."""

from __future__ import annotations

import base64
import binascii
from collections import deque

from t5x_harness.google.storage.core import ChangedOutside, Core, TreeView
from t5x_harness.google.storage.database import ObjectRecord
from t5x_harness.google.storage.errors import Invalid
from t5x_harness.google.storage.names import compile_glob, literal_prefix
from t5x_harness.google.storage.tree import TreeWalk
from t5x_harness.google.storage.values import Listing, ListingQuery, StoredObject

MOST_RESULTS = 1000
_RECORDS_AT_A_TIME = 200


def list_objects(core: Core, bucket: str, query: ListingQuery) -> Listing:
    """Returns a page of the objects of a bucket at one moment.

    The store's lock is held for about 40 ms with 1000 objects: without it, a page could show an object twice, or
    not at all, if it is renamed meanwhile. Small requests then wait in a thread.

    Raises:
      Invalid: the page token, glob or number of results is invalid.
    """
    page = _Page(query)

    def action(view: TreeView) -> Listing:
        core.buckets.get(bucket)
        with core.changing():  # otherwise a file that a mount renames might be missed under both names
            return page.fill(_BucketNames(core, view, bucket))

    return core.run(action)


def is_empty(core: Core, view: TreeView, bucket: str) -> bool:
    """Tells whether a bucket has no object."""
    return _BucketNames(core, view, bucket).next_from(b"") is None


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Invalid(f"Invalid query: {text!r} is not Unicode text") from None


class _Page:
    """A page of a listing, with the texts of its query in bytes; raises Invalid like :func:`list_objects`."""

    def __init__(self, query: ListingQuery) -> None:
        if query.max_results < 1:
            raise Invalid(f"Invalid value for maxResults: {query.max_results}: it must be at least 1")
        if query.match_glob is not None and query.delimiter not in ("", "/"):
            raise Invalid(f"Invalid delimiter with matchGlob: {query.delimiter!r}: it must be '/' or left out")
        self._query = query
        self._prefix = _utf8(query.prefix)
        try:
            position = base64.b64decode(query.page_token or "", altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise Invalid(f"Invalid page token: {query.page_token!r}") from error
        starts = [self._prefix, _utf8(query.start_offset), position]
        if query.match_glob is not None and not query.delimiter:
            starts.append(_utf8(literal_prefix(query.match_glob)))
        self._start = max(starts)
        self._end = None if query.end_offset is None else _utf8(query.end_offset)
        self._delimiter = _utf8(query.delimiter)
        self._glob = None if query.match_glob is None else compile_glob(query.match_glob)
        self._most = min(query.max_results, MOST_RESULTS)

    def fill(self, names: _BucketNames) -> Listing:
        """Returns the page; raises ChangedOutside with all files that have to be read first."""
        objects: list[StoredObject] = []
        prefixes: list[str] = []
        unread: list[tuple[str, str]] = []
        next_page = None
        position = self._start
        while (entry := names.next_from(position)) is not None:
            name, record = entry
            if not name.startswith(self._prefix) or (self._end is not None and name >= self._end):
                break
            cut = self._cut(name)
            whole = (
                cut in (None, name) and (cut is None or self._query.include_trailing_delimiter) and self._matches(name)
            )
            part = cut is not None and self._matches(cut)
            count = len(objects) + len(prefixes) + len(unread)
            # An object that is listed in addition to its prefix may extend an empty page by one.
            if count and count + whole + part > self._most:
                next_page = base64.urlsafe_b64encode(name).decode()
                break
            if whole and record is None:
                unread.append((names.bucket, name.decode()))
            elif whole and record is not None:
                objects.append(record.object)
            if part and cut is not None:
                prefixes.append(cut.decode())
            # After the name, or after all names with the prefix: UTF-8 has no byte of 255, so the last byte can grow.
            position = name + b"\0" if cut is None else cut[:-1] + bytes([cut[-1] + 1])
        if unread:
            raise ChangedOutside(unread)
        names.forget_gone()
        return Listing(tuple(objects), tuple(prefixes), next_page)

    def _cut(self, name: bytes) -> bytes | None:
        """Returns the name up to its first delimiter after the prefix, or None if it has none."""
        found = name.find(self._delimiter, len(self._prefix)) if self._delimiter else -1
        return None if found < 0 else name[: found + len(self._delimiter)]

    def _matches(self, name: bytes) -> bool:
        return self._glob is None or self._glob.matches(name.decode())


class _BucketNames:
    """Walks the names of a bucket, from records and tree, in order, and can jump ahead. Needs the store's lock."""

    def __init__(self, core: Core, view: TreeView, bucket: str) -> None:
        self.bucket = bucket
        self._core = core
        self._view = view
        self._walk = TreeWalk(f"{core.layout.buckets}/{bucket}")
        self._file: bytes | None = b""
        self._records: deque[tuple[bytes, ObjectRecord]] = deque()
        self._more_records = True
        self._gone: list[ObjectRecord] = []

    def next_from(self, start: bytes) -> tuple[bytes, ObjectRecord | None] | None:
        """Returns the first name that is not before ``start``, which must not go back; None after the last.

        The name comes with its record, or with None if its file has to be read first.
        """
        while True:
            name, record = self._next_name(start)
            if name is None:
                return None
            try:
                live = self._view.see(self.bucket, name.decode(), record)
            except ChangedOutside:
                return name, None
            if live is not None:
                return name, live
            if record is not None:
                self._gone.append(record)
            start = name + b"\0"

    def forget_gone(self) -> None:
        """Forgets the objects whose files were found gone."""
        for record in self._gone:
            self._core.forget_gone(record)

    def _next_name(self, start: bytes) -> tuple[bytes | None, ObjectRecord | None]:
        if self._file is not None and (self._file < start or not self._file):
            found = self._walk.next_from(start)
            self._file = None if found is None else found.encode()
        while self._records and self._records[0][0] < start:
            self._records.popleft()
        if not self._records and self._more_records:
            found_records = self._core.database.records_from(self.bucket, start, limit=_RECORDS_AT_A_TIME)
            self._more_records = len(found_records) == _RECORDS_AT_A_TIME
            self._records.extend((record.object.name.encode(), record) for record in found_records)
        if not self._records or (self._file is not None and self._file < self._records[0][0]):
            return self._file, None
        return self._records[0]
