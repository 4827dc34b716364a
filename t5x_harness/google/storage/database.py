"""The records of the store in SQLite, which survive the end of the process at any moment.

Commits reach the operating system before anything is answered, so a killed server forgets nothing. A power cut is
different: the database stays consistent (SQLite's WAL with synchronous=NORMAL) but may lose the last changes. Bodies
are not synced, so an object written shortly before may have an empty or truncated file. Such a file differs from the
recorded one and is treated as a change from outside: it becomes a new generation with the content that is left.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t5x_harness.google.storage.disk import is_full
from t5x_harness.google.storage.errors import CannotOpen
from t5x_harness.google.storage.values import (
    Bucket,
    Checksums,
    MultipartUpload,
    ObjectFields,
    Preconditions,
    StoredObject,
    Upload,
    UploadPart,
)

_VERSION = 2
_CHANGES_KEPT = 3000  # rows; each takes a page or two of 4 KB in the log
_SCHEMA = """
CREATE TABLE buckets (
    name TEXT PRIMARY KEY, created INTEGER, metageneration INTEGER, fields TEXT
) WITHOUT ROWID;
-- Names are blobs so that they sort by their UTF-8 bytes, as Google lists them.
CREATE TABLE objects (
    bucket TEXT, name BLOB, generation INTEGER, metageneration INTEGER, size INTEGER, created INTEGER, updated INTEGER,
    md5 TEXT, crc32c TEXT, fields TEXT, component_count INTEGER, place TEXT, body TEXT, inode INTEGER, mtime INTEGER,
    replaced TEXT, PRIMARY KEY (bucket, name)
) WITHOUT ROWID;
CREATE TABLE uploads (
    id TEXT PRIMARY KEY, started INTEGER, bucket TEXT, name BLOB, fields TEXT, preconditions TEXT, expected TEXT,
    finished TEXT
) WITHOUT ROWID;
CREATE TABLE multiparts (
    id TEXT PRIMARY KEY, started INTEGER, bucket TEXT, name BLOB, fields TEXT
) WITHOUT ROWID;
CREATE TABLE parts (
    upload TEXT, number INTEGER, size INTEGER, updated INTEGER, md5 TEXT, crc32c TEXT, body TEXT,
    PRIMARY KEY (upload, number)
) WITHOUT ROWID;
CREATE TABLE clock (last INTEGER);
INSERT INTO clock VALUES (0);
"""
# The records of both names before a move that has not ended yet.
_MOVES = "CREATE TABLE IF NOT EXISTS moves AS SELECT *, name AS target, generation AS moved FROM objects WHERE false"
_COLUMNS = (
    "bucket, name, generation, metageneration, size, created, updated, md5, crc32c, fields, component_count, "
    "place, body, inode, mtime, replaced"
)
_LOOK_UP = f"SELECT {_COLUMNS} FROM objects WHERE bucket = ? AND name = ?"
_PUT = f"INSERT OR REPLACE INTO objects ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class BodyPlace(enum.StrEnum):
    """The location of an object's body."""

    TREE = "tree"  # the file of that name in the bucket's folder
    FOLDER = "folder"  # none: it is empty, its name ends in a slash, and the tree has a folder of that name
    ASIDE = "aside"  # outside the tree, which cannot hold the name


class Identity(NamedTuple):
    """The values that change when someone writes a file."""

    inode: int  # changes if another file takes its place
    size: int
    mtime: int  # in nanoseconds

    @classmethod
    def text(cls, found: Identity | None) -> str:
        """Returns an identity as one word, or an empty string for no file."""
        return "" if found is None else ":".join(map(str, found))


@dataclasses.dataclass(frozen=True)
class ObjectRecord:
    """An object and the location of its body.

    Attributes:
      replaced: the file that the tree had when this was recorded, as returned by :meth:`Identity.text`. It tells
        whether a body that a killed process left behind may still take its place.
    """

    object: StoredObject
    place: BodyPlace
    body: str  # the name of its file while incoming or aside; empty for one that came from outside
    identity: Identity
    replaced: str = ""


class Database:
    """The tables. Every call needs the store's lock, which makes one connection enough for all threads."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._open(path)
        except BaseException:
            self.close()
            raise

    def _open(self, path: Path) -> None:
        self._execute = self._connection.execute
        self._execute("PRAGMA synchronous = OFF")  # there is nothing to lose yet
        # The store's lock already admits one process only; SQLite would make eight system calls per written object.
        self._execute("PRAGMA locking_mode = EXCLUSIVE")
        self._execute("PRAGMA journal_mode = WAL")
        self._execute("PRAGMA wal_autocheckpoint = 0")  # a checkpoint waits for the disk: see ``checkpoint``
        found = self._execute("PRAGMA user_version").fetchone()[0]
        if found not in (0, _VERSION):
            raise CannotOpen(
                f"{path} has layout {found} of another release, this one reads {_VERSION}: name another folder"
            )
        if found == 0:
            self._connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
        self._execute(_MOVES)
        self._execute("PRAGMA synchronous = NORMAL")
        with contextlib.suppress(sqlite3.OperationalError):  # the disk is full: the log stays as it is
            self._execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the log of a killed server
        latest = "SELECT max(last, (SELECT coalesce(max(generation), 0) FROM objects)) FROM clock"
        self._last: int = self._execute(latest).fetchone()[0]
        self._checkpointed = self._connection.total_changes

    def close(self) -> None:
        self._connection.close()

    @property
    def wants_checkpoint(self) -> bool:
        """Whether the log of changes has become long."""
        return self._connection.total_changes - self._checkpointed >= _CHANGES_KEPT

    def checkpoint(self, *, cut: bool = False) -> None:
        """Moves the log's content into the tables, which may wait for the disk; ``cut`` also truncates the log."""
        self._execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if cut else 'PASSIVE'})")
        self._checkpointed = self._connection.total_changes

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Applies all changes of the block, or none."""
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._execute("ROLLBACK")
            raise

    def next_generation(self) -> int:
        """Returns a new generation: the time in microseconds, or more if that was recorded before."""
        self._last = max(time.time_ns() // 1000, self._last + 1)
        return self._last

    def _keep_clock(self) -> None:
        """Records the last generation before objects that may have it are forgotten; otherwise the objects hold it."""
        self._execute("UPDATE clock SET last = ?", (self._last,))

    def put_bucket(self, bucket: Bucket) -> None:
        """Records a bucket, or replaces its record."""
        row = (bucket.name, bucket.created, bucket.metageneration, _to_json(dict(bucket.fields)))
        self._execute("INSERT OR REPLACE INTO buckets VALUES (?, ?, ?, ?)", row)

    def buckets(self) -> list[Bucket]:
        rows = self._execute("SELECT name, created, metageneration, fields FROM buckets")
        return [Bucket(name, created, meta, json.loads(fields)) for name, created, meta, fields in rows]

    def forget_bucket(self, name: str) -> list[str]:
        """Forgets a bucket and its uploads, in a transaction; returns the bodies that the uploads had received."""
        self._keep_clock()
        self._execute("DELETE FROM buckets WHERE name = ?", (name,))
        self._execute("DELETE FROM objects WHERE bucket = ?", (name,))
        of_bucket = "upload IN (SELECT id FROM multiparts WHERE bucket = ?)"
        bodies = self._execute(
            "SELECT id FROM uploads WHERE bucket = ? AND finished IS NULL UNION "
            f"SELECT body FROM parts WHERE {of_bucket}",
            (name, name),
        ).fetchall()
        self._execute("DELETE FROM uploads WHERE bucket = ?", (name,))
        self._execute(f"DELETE FROM parts WHERE {of_bucket}", (name,))
        self._execute("DELETE FROM multiparts WHERE bucket = ?", (name,))
        return [body for (body,) in bodies]

    def record(self, bucket: str, name: str) -> ObjectRecord | None:
        row = self._execute(_LOOK_UP, (bucket, name.encode())).fetchone()
        return None if row is None else _record(row)

    def records_from(
        self, bucket: str, start: bytes, *, before: bytes | None = None, limit: int = -1
    ) -> list[ObjectRecord]:
        """Returns the records from a name on, in byte order, up to but excluding another name."""
        end = "" if before is None else "AND name < ?"
        query = f"SELECT {_COLUMNS} FROM objects WHERE bucket = ? AND name >= ? {end} ORDER BY name LIMIT ?"
        bounds = (start,) if before is None else (start, before)
        return [_record(row) for row in self._execute(query, (bucket, *bounds, limit))]

    def records_of_bodies(self, bodies: set[str]) -> dict[str, ObjectRecord]:
        """Returns the records that name one of the bodies; reads the whole table."""
        rows = self._execute(f"SELECT {_COLUMNS} FROM objects WHERE body != ''") if bodies else ()
        return {row[12]: _record(row) for row in rows if row[12] in bodies}

    def put(self, record: ObjectRecord) -> None:
        """Records an object, or replaces the record of its name."""
        it = record.object
        row = (it.bucket, it.name.encode(), it.generation, it.metageneration, it.size, it.created, it.updated)
        more = it.md5, it.crc32c, _fields_to_text(it.fields), it.component_count, record.place.value, record.body
        self._execute(_PUT, (*row, *more, record.identity.inode, record.identity.mtime, record.replaced))

    def forget(self, bucket: str, name: str) -> None:
        self._keep_clock()
        self._execute("DELETE FROM objects WHERE bucket = ? AND name = ?", (bucket, name.encode()))

    def begin_move(self, source: StoredObject, target: ObjectRecord) -> None:
        """Records an object's new name, in a transaction; this can be undone until ``end_move``."""
        it = target.object
        self._execute("DELETE FROM moves")
        self._execute(
            f"INSERT INTO moves SELECT {_COLUMNS}, ?, ? FROM objects WHERE bucket = ? AND name IN (?, ?)",
            (it.name.encode(), it.generation, it.bucket, source.name.encode(), it.name.encode()),
        )
        self.forget(source.bucket, source.name)
        self.put(target)

    def end_move(self) -> None:
        """Makes the last move final; on a full disk, the next move does that."""
        try:
            self._execute("DELETE FROM moves")
        except sqlite3.Error as error:
            if not is_full(error):
                raise

    def begun_move(self) -> tuple[ObjectRecord, ObjectRecord] | None:
        """Returns the records before and after a move that has not ended, or None if there is no such move."""
        row = self._execute("SELECT * FROM moves WHERE name != target").fetchone()
        if row is None:
            return None
        *source, target, generation = row
        found = self.record(row[0], target.decode())
        return (_record(tuple(source)), found) if found and found.object.generation == generation else None

    def undo_move(self, moved: StoredObject) -> None:
        """Restores the records that a move has changed."""
        with self.transaction():
            self.forget(moved.bucket, moved.name)
            self._execute(f"INSERT OR IGNORE INTO objects SELECT {_COLUMNS} FROM moves")
            self._execute("DELETE FROM moves")

    def put_upload(self, upload: Upload, started: int) -> None:
        """Records a new upload; ``started`` in microseconds."""
        row = (upload.id, started, upload.bucket, upload.name.encode(), _fields_to_text(upload.fields))
        wanted = _to_json(upload.preconditions), _to_json(upload.expected)
        self._execute("INSERT INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", (*row, *wanted))

    def upload(self, upload_id: str) -> Upload | None:
        """Returns an upload as it was recorded, with nothing received."""
        row = self._execute("SELECT * FROM uploads WHERE id = ?", (upload_id,)).fetchone()
        return None if row is None else _upload(row)

    def uploads(self) -> list[tuple[int, Upload]]:
        """Returns all uploads, each with the time of its start."""
        return [(row[1], _upload(row)) for row in self._execute("SELECT * FROM uploads")]

    def finish_upload(self, upload_id: str, written: StoredObject) -> None:
        """Records the object of an upload, in the transaction that records the object itself."""
        self._execute("UPDATE uploads SET finished = ? WHERE id = ?", (_to_json(written), upload_id))

    def reopen_upload(self, upload_id: str) -> bool:
        """Records that an upload has not become an object; returns False if there is no such upload."""
        return self._execute("UPDATE uploads SET finished = NULL WHERE id = ?", (upload_id,)).rowcount > 0

    def forget_upload(self, upload_id: str) -> None:
        self._execute("DELETE FROM uploads WHERE id = ?", (upload_id,))

    def put_multipart(self, upload: MultipartUpload) -> None:
        row = (upload.id, upload.started, upload.bucket, upload.name.encode(), _fields_to_text(upload.fields))
        self._execute("INSERT INTO multiparts VALUES (?, ?, ?, ?, ?)", row)

    def multiparts(self, bucket: str) -> list[MultipartUpload]:
        """Returns the multipart uploads to a bucket, without their parts, by name and then by start."""
        query = "SELECT id, bucket, name, fields, started FROM multiparts WHERE bucket = ? ORDER BY name, started"
        return [
            MultipartUpload(upload, bucket, name.decode(), _fields_of(fields), started)
            for upload, bucket, name, fields, started in self._execute(query, (bucket,))
        ]

    def multipart(self, upload_id: str) -> MultipartUpload | None:
        """Returns a multipart upload with its parts."""
        query = "SELECT bucket, name, fields, started FROM multiparts WHERE id = ?"
        row = self._execute(query, (upload_id,)).fetchone()
        if row is None:
            return None
        query = "SELECT number, size, updated, md5, crc32c, body FROM parts WHERE upload = ? ORDER BY number"
        parts = tuple(
            UploadPart(number, size, updated, Checksums(md5, crc32c), body)
            for number, size, updated, md5, crc32c, body in self._execute(query, (upload_id,))
        )
        bucket, name, fields, started = row
        return MultipartUpload(upload_id, bucket, name.decode(), _fields_of(fields), started, parts)

    def part_bodies(self) -> set[str]:
        return {row[0] for row in self._execute("SELECT body FROM parts")}

    def put_part(self, upload_id: str, part: UploadPart) -> None:
        """Records a part, or replaces the part of its number."""
        row = (upload_id, part.number, part.size, part.updated, part.checksums.md5, part.checksums.crc32c, part.body)
        self._execute("INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def forget_multipart(self, upload_id: str) -> None:
        """Forgets a multipart upload and its parts, in a transaction."""
        self._execute("DELETE FROM multiparts WHERE id = ?", (upload_id,))
        self._execute("DELETE FROM parts WHERE upload = ?", (upload_id,))


def _record(row: Sequence[Any]) -> ObjectRecord:
    bucket, name, *numbers, fields, components, place, body, inode, mtime, replaced = row
    stored = StoredObject(*[bucket, name.decode(), *numbers, _fields_of(fields), components])
    return ObjectRecord(stored, BodyPlace(place), body, Identity(inode, stored.size, mtime), replaced)


def _upload(row: tuple[str, int, str, bytes, str, str, str, str | None]) -> Upload:
    upload_id, _, bucket, name, fields, preconditions, expected, finished = row
    written = None
    if finished is not None:
        values = json.loads(finished)
        written = StoredObject(**values | {"fields": ObjectFields(**values["fields"])})
    wanted = Preconditions(**json.loads(preconditions)), Checksums(**json.loads(expected))
    return Upload(upload_id, bucket, name.decode(), _fields_of(fields), *wanted, received=0, finished=written)


def _fields_to_text(fields: ObjectFields) -> str:
    """Returns, as JSON, the fields that a client has set, or an empty string if it has set none."""
    return _remembered_text(fields) if fields.metadata is None else _make_text(fields)


def _make_text(fields: ObjectFields) -> str:
    given = {name: value for name, value in vars(fields).items() if value is not None}
    return _to_json(given) if given else ""


def _fields_of(text: str) -> ObjectFields:
    """Reads what ``_fields_to_text`` wrote."""
    return _make_fields(text) if '"metadata"' in text else _remembered_fields(text)


def _make_fields(text: str) -> ObjectFields:
    return ObjectFields(**json.loads(text)) if text else ObjectFields()


def _to_json(value: object) -> str:
    """Returns a value, or the fields of a dataclass, as JSON that an answer can repeat.

    Raises:
      ValueError: the value has text that is not Unicode, or a number that JSON does not have.
    """
    text = json.dumps(value, default=vars, ensure_ascii=False, allow_nan=False)
    text.encode()
    return text


# Most objects have one of a few content types and no other field. Metadata are mutable, and must not be shared.
_remembered_text = functools.lru_cache(1024)(_make_text)
_remembered_fields = functools.lru_cache(1024)(_make_fields)
