"""Moves bodies to their locations: into the tree if it can hold the object's name, otherwise aside.

The tree cannot hold a name that no file can have (``a//b``, ``../x``, a part of 300 bytes), nor ``a/b`` while
``a`` is a file, nor ``a`` while ``a`` is a folder. The first one stays: a later write moves or hides nothing that
the tree shows. When the object in the way is deleted, the bodies that waited aside move in. An empty object ``a/`` is
the folder ``a``. Every call but ``new_name`` and ``drop`` also needs the lock on the files, because mounts also change
the tree.
"""

import contextlib
import dataclasses
import itertools
import os
import secrets
import sqlite3
from collections.abc import Iterable

from t5x_harness.google.storage.database import BodyPlace, Database, Identity, ObjectRecord
from t5x_harness.google.storage.disk import StoreLayout, is_full
from t5x_harness.google.storage.tree import identify, identity_of, make_folders, remove_folder
from t5x_harness.google.storage.values import StoredObject


class Bodies:
    """Moves bodies. Every call needs the store's lock."""

    def __init__(self, layout: StoreLayout, database: Database) -> None:
        self._layout = layout
        self._database = database
        self._opening, self._names = secrets.token_hex(8), itertools.count()

    def new_name(self) -> str:
        """Returns a name that no other body has or had; any thread may call this."""
        return f"{self._opening}{next(self._names):x}"

    def choose(self, bucket: str, name: str, size: int) -> tuple[BodyPlace, str]:
        """Makes the folders for a body; returns its location, and the file in the tree that it replaces."""
        folder = self._layout.folder_path(bucket, name)
        if folder is not None:
            return BodyPlace.FOLDER if size == 0 and make_folders(folder) else BodyPlace.ASIDE, ""
        path = self._layout.tree_path(bucket, name)
        if path is None:
            return BodyPlace.ASIDE, ""
        if os.access(path, os.F_OK):  # most names are new, and for those this check is faster than an error of os.stat
            found = identify(path)
            return BodyPlace.ASIDE if found is None else BodyPlace.TREE, Identity.text(found)
        return BodyPlace.TREE if make_folders(os.path.dirname(path)) else BodyPlace.ASIDE, ""

    def path(self, record: ObjectRecord) -> str:
        """Returns the path to read a body from."""
        if record.place is BodyPlace.ASIDE:
            return f"{self._layout.aside}/{record.body}"
        if record.place is BodyPlace.FOLDER:
            return os.devnull
        return f"{self._layout.buckets}/{record.object.bucket}/{record.object.name}"

    def install(self, source: str, record: ObjectRecord, old: ObjectRecord | None) -> None:
        """Puts a body at the location in its committed record, and removes the body of the name's previous record."""
        self._move(source, record)
        if old is not None and old.place is BodyPlace.ASIDE:
            _remove(f"{self._layout.aside}/{old.body}")
        if old is not None and old.place is BodyPlace.FOLDER and record.place is not BodyPlace.FOLDER:
            self._prune(record.object.bucket, record.object.name[:-1], implied=False)

    def rename(self, record: ObjectRecord, moved: StoredObject) -> None:
        """Gives an object's body to another object, and forgets the first.

        The transaction comes before the file is renamed, and recovery undoes it after a kill in between. Mounts see one
        of the two names at any moment, and keep working while no process serves the store. If the move cannot be
        recorded, nothing changes. Raises FileNotFoundError if someone outside has removed the file.
        """
        it, old = record.object, self._database.record(moved.bucket, moved.name)
        source, identity = self.path(record), record.identity
        body = self.new_name() if record.place is not BodyPlace.ASIDE else record.body
        try:
            if record.place is BodyPlace.FOLDER:
                source = f"{self._layout.incoming}/{body}"
                with open(source, "xb") as empty:
                    identity = identity_of(os.fstat(empty.fileno()))
            place, replaced = self.choose(moved.bucket, moved.name, moved.size)
            there = ObjectRecord(moved, place, body, identity, replaced)
            with self._database.transaction():
                self._database.begin_move(it, there)
        except BaseException:
            self._prune(moved.bucket, os.path.dirname(moved.name))
            if record.place is BodyPlace.FOLDER:
                _remove(source)
            raise
        try:
            self.install(source, there, old)
        except (OSError, sqlite3.Error):
            self._database.undo_move(moved)
            raise
        self._database.end_move()
        self._give_room(record)

    def remove(self, record: ObjectRecord) -> None:
        """Removes the body of an object and forgets it; if that cannot be recorded, nothing changes."""
        path = self.path(record)
        if record.place is BodyPlace.TREE:
            # It leaves the tree first: a file there that outlives its record would count as a new object.
            path = f"{self._layout.incoming}/{self.new_name()}"
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                os.rename(self.path(record), path)
        try:
            self._database.forget(record.object.bucket, record.object.name)
        except BaseException:
            if record.place is BodyPlace.TREE:
                with contextlib.suppress(FileNotFoundError, FileExistsError):
                    os.link(path, self.path(record))  # this does not replace a file that someone outside has put there
                    os.unlink(path)
            raise
        if record.place is not BodyPlace.FOLDER:
            _remove(path)
        self._give_room(record)

    def forget(self, record: ObjectRecord) -> None:
        """Forgets an object whose body is gone from the tree, so that others may move in; its folder stays."""
        self._database.forget(record.object.bucket, record.object.name)
        if record.place is BodyPlace.TREE:
            self._free(record.object.bucket, record.object.name)

    def _give_room(self, record: ObjectRecord) -> None:
        """Cleans up after a forgotten object: waiting bodies move in, and empty folders are removed."""
        bucket, name = record.object.bucket, record.object.name
        if record.place is BodyPlace.FOLDER:
            self._prune(bucket, name[:-1], implied=False)
        elif record.place is BodyPlace.TREE:
            self._free(bucket, name)
            self._prune(bucket, os.path.dirname(name))

    def move_in(self, record: ObjectRecord) -> ObjectRecord:
        """Moves a body from aside into the tree if that can hold it now; returns the body's current record."""
        it = record.object
        path = self._layout.tree_path(it.bucket, it.name)
        if record.place is not BodyPlace.ASIDE or (path is not None and os.path.lexists(path)):
            return record
        place, replaced = self.choose(it.bucket, it.name, it.size)
        if place is BodyPlace.ASIDE:
            return record
        moved = dataclasses.replace(record, place=place, replaced=replaced)
        try:
            self._database.put(moved)
        except sqlite3.Error as error:
            if not is_full(error):
                raise
            return record  # it can also be read aside, and moves once space is available
        self._move(f"{self._layout.aside}/{record.body}", moved)
        return moved

    def drop(self, bodies: Iterable[str]) -> None:
        for body in bodies:
            _remove(f"{self._layout.incoming}/{body}")

    def recover(self, unfinished: set[str]) -> None:
        """Completes the work of a killed process: moves bodies with a record to their location, and removes others."""
        if (begun := self._database.begun_move()) is not None:
            source, target = begun
            if self._has_moved(source, target):
                self._database.end_move()
            else:
                self._database.undo_move(target.object)
        incoming = set(os.listdir(self._layout.incoming)) - unfinished
        aside = set(os.listdir(self._layout.aside))
        records = self._database.records_of_bodies(incoming | aside)
        for body in incoming:
            self._recover(f"{self._layout.incoming}/{body}", records.get(body))
        for body in aside:
            self._recover(f"{self._layout.aside}/{body}", records.get(body))

    def _has_moved(self, source: ObjectRecord, target: ObjectRecord) -> bool:
        """Tells whether a killed process has moved the file of an object, and the file is still there.

        If a mount has put another file there since, the move is also undone: it was never acknowledged, and records of
        files that are gone are forgotten when they are looked up.
        """
        if target.place is BodyPlace.FOLDER:
            return source.place is BodyPlace.FOLDER or identify(self.path(source)) != source.identity
        return identify(self.path(target)) == target.identity

    def _recover(self, path: str, record: ObjectRecord | None) -> None:
        if record is None:
            _remove(path)
        elif record.place is BodyPlace.TREE and record.replaced != Identity.text(identify(self.path(record))):
            # A mount has changed the tree since: its change, unlike this write, was acknowledged.
            with self._database.transaction():
                self._database.forget(record.object.bucket, record.object.name)
                reopened = self._database.reopen_upload(record.body)
            if not reopened:
                _remove(path)
        elif record.place is not BodyPlace.ASIDE or path != self.path(record):
            if record.place is BodyPlace.TREE:
                make_folders(os.path.dirname(self.path(record)))
            self._move(path, record)

    def _move(self, source: str, record: ObjectRecord) -> None:
        if record.place is BodyPlace.FOLDER:
            _remove(source)
            return
        try:
            os.replace(source, self.path(record))
        except OSError:
            if record.place is BodyPlace.ASIDE:
                raise
            # Someone outside has taken the path since it was chosen.
            aside = dataclasses.replace(record, place=BodyPlace.ASIDE)
            self._database.put(aside)
            os.replace(source, self.path(aside))

    def _free(self, bucket: str, name: str) -> None:
        """Moves in the bodies below a name whose file is gone."""
        below = f"{name}/".encode()
        for record in self._database.records_from(bucket, below, before=below[:-1] + b"0"):  # "0" comes after "/"
            self.move_in(record)

    def _prune(self, bucket: str, folder: str, *, implied: bool = True) -> None:
        """Removes empty folders upwards, as long as they exist only because objects' names implied them.

        With ``implied=False``, the first one goes even if someone made it: a removed object ``folder/`` takes it along.
        """
        while folder:
            marker = self._database.record(bucket, f"{folder}/")
            if marker is not None and marker.place is BodyPlace.FOLDER:
                return
            if not remove_folder(f"{self._layout.buckets}/{bucket}/{folder}", implied=implied):
                return
            implied = True
            if (waiting := self._database.record(bucket, folder)) is not None:
                self.move_in(waiting)
                return
            folder = os.path.dirname(folder)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
        os.unlink(path)
