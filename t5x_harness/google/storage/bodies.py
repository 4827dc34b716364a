"""Putting bodies where they belong: in the tree if it has room for their name, else aside.

The tree has no room for a name that no file can have (``a//b``, ``../x``, a part of 300 bytes), nor for ``a/b`` while
there is a file ``a``, nor for ``a`` while there is a folder ``a``. Who came first keeps the room: nothing that the tree
shows is moved or hidden by a later write. When the room gets free because the object that took it is deleted, those
that waited aside for it move in. An empty object ``a/`` is the folder ``a``.
Every call but ``new_name`` and ``drop`` also needs the lock on the files, as mounts change the tree, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import secrets
import sqlite3
from collections.abc import Iterable

from t5x_harness.google.storage.database import BodyPlace, Database, Identity, ObjectRecord
from t5x_harness.google.storage.disk import is_full
from t5x_harness.google.storage.folders import make_folders, remove_folder
from t5x_harness.google.storage.layout import StoreLayout
from t5x_harness.google.storage.tree import identify, identity_of
from t5x_harness.google.storage.values import StoredObject


class Bodies:
    """Moves bodies. Every call needs the store's lock."""

    def __init__(self, layout: StoreLayout, database: Database) -> None:
        self._layout = layout
        self._database = database
        self._opening, self._names = secrets.token_hex(8), itertools.count()

    def new_name(self) -> str:
        """Returns a name for the file of a body, which no other one has or had; any thread may ask for one."""
        return f"{self._opening}{next(self._names):x}"

    def choose(self, bucket: str, name: str, size: int) -> tuple[BodyPlace, str]:
        """Returns where a body can go, with the folders above it made, and which file of the tree it replaces."""
        folder = self._layout.folder_path(bucket, name)
        if folder is not None:
            return BodyPlace.FOLDER if size == 0 and make_folders(folder) else BodyPlace.ASIDE, ""
        path = self._layout.tree_path(bucket, name)
        if path is None:
            return BodyPlace.ASIDE, ""
        if os.access(path, os.F_OK):  # most are new, for which an error of os.stat would take longer than the question
            found = identify(path)
            return BodyPlace.ASIDE if found is None else BodyPlace.TREE, Identity.text(found)
        return BodyPlace.TREE if make_folders(os.path.dirname(path)) else BodyPlace.ASIDE, ""

    def path(self, record: ObjectRecord) -> str:
        """Returns the file to read a body from."""
        if record.place is BodyPlace.ASIDE:
            return self._layout.aside_path(record.body)
        if record.place is BodyPlace.FOLDER:
            return os.devnull
        return f"{self._layout.bucket_folder(record.object.bucket)}/{record.object.name}"

    def install(self, record: ObjectRecord, old: ObjectRecord | None = None) -> None:
        """Puts an incoming body where its record, already committed, says it is.

        Args:
          old: what the name had before; its body goes.
        """
        self._install(self._layout.incoming_path(record.body), record, old)

    def _install(self, source: str, record: ObjectRecord, old: ObjectRecord | None) -> None:
        self._move(source, record)
        if old is not None and old.place is BodyPlace.ASIDE:
            _remove(self._layout.aside_path(old.body))
        if old is not None and old.place is BodyPlace.FOLDER and record.place is not BodyPlace.FOLDER:
            self._prune(record.object.bucket, record.object.name[:-1], implied=False)

    def rename(self, record: ObjectRecord, moved: StoredObject) -> None:
        """Makes an object's body another's, and forgets the first.

        The transaction comes before the file is renamed, which a kill in between has recovery undo: mounts see one of
        the two names at any moment, and go on while no process serves the store.

        Raises FileNotFoundError if somebody outside has removed the file; where it cannot be recorded, all stays as it
        was.
        """
        it, old = record.object, self._database.record(moved.bucket, moved.name)
        source, identity = self.path(record), record.identity
        body = self.new_name() if record.place is not BodyPlace.ASIDE else record.body
        try:
            if record.place is BodyPlace.FOLDER:
                source = self._layout.incoming_path(body)
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
            self._install(source, there, old)
        except (OSError, sqlite3.Error):
            self._database.undo_move(moved)
            raise
        self._database.end_move()
        self._give_room(record)

    def remove(self, record: ObjectRecord) -> None:
        """Removes the body of an object and forgets it; where that cannot be recorded, all stays as it was."""
        path = self.path(record)
        if record.place is BodyPlace.TREE:
            # Out of the tree first, where a file that outlives its record would be taken for a new one.
            path = self._layout.incoming_path(self.new_name())
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                os.rename(self.path(record), path)
        try:
            self._database.forget(record.object.bucket, record.object.name)
        except BaseException:
            if record.place is BodyPlace.TREE:
                with contextlib.suppress(FileNotFoundError, FileExistsError):
                    os.link(path, self.path(record))  # not over what somebody outside may have put there
                    os.unlink(path)
            raise
        if record.place is not BodyPlace.FOLDER:
            _remove(path)
        self._give_room(record)

    def forget(self, record: ObjectRecord) -> None:
        """Forgets an object whose body is gone from the tree; others may move into its room.

        The folder stays: only the file was removed.
        """
        self._database.forget(record.object.bucket, record.object.name)
        if record.place is BodyPlace.TREE:
            self._free(record.object.bucket, record.object.name)

    def _give_room(self, record: ObjectRecord) -> None:
        """Cleans up after an object that is forgotten: others move into its room, and empty folders go."""
        bucket, name = record.object.bucket, record.object.name
        if record.place is BodyPlace.FOLDER:
            self._prune(bucket, name[:-1], implied=False)
        elif record.place is BodyPlace.TREE:
            self._free(bucket, name)
            self._prune(bucket, os.path.dirname(name))

    def move_in(self, record: ObjectRecord) -> ObjectRecord:
        """Moves a body from aside into the tree if there is room by now; returns its record, which says where it is."""
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
            return record  # aside it is as good, and it moves as soon as there is room
        self._move(self._layout.aside_path(record.body), moved)
        return moved

    def drop(self, bodies: Iterable[str]) -> None:
        for body in bodies:
            _remove(self._layout.incoming_path(body))

    def recover(self, unfinished: set[str]) -> None:
        """Ends what a killed process began: bodies with a record go to their place, those without one go away.

        Args:
          unfinished: those that stay incoming.
        """
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
            self._recover(self._layout.incoming_path(body), records.get(body))
        for body in aside:
            self._recover(self._layout.aside_path(body), records.get(body))

    def _has_moved(self, source: ObjectRecord, target: ObjectRecord) -> bool:
        """Returns whether a killed process has moved the file of an object, and it is still there.

        If a mount has given the name another file since, that move is undone, too: it was never acknowledged, and
        records of files that are gone are forgotten when they are looked for.
        """
        if target.place is BodyPlace.FOLDER:
            return source.place is BodyPlace.FOLDER or identify(self.path(source)) != source.identity
        return identify(self.path(target)) == target.identity

    def _recover(self, path: str, record: ObjectRecord | None) -> None:
        if record is None:
            _remove(path)
        elif record.place is BodyPlace.TREE and self._is_overtaken(record):
            self._take_back(path, record)
        elif record.place is not BodyPlace.ASIDE or path != self.path(record):
            if record.place is BodyPlace.TREE:
                make_folders(os.path.dirname(self.path(record)))
            self._move(path, record)

    def _is_overtaken(self, record: ObjectRecord) -> bool:
        """Returns whether a mount has changed the tree since a record was made whose body is not in its place yet."""
        return record.replaced not in (None, Identity.text(identify(self.path(record))))

    def _take_back(self, path: str, record: ObjectRecord) -> None:
        """Undoes a write that was never acknowledged: what a mount did since was, and stands."""
        with self._database.transaction():
            self._database.forget(record.object.bucket, record.object.name)
            reopened = self._database.reopen_upload(record.body)
        if not reopened:
            _remove(path)

    def _move(self, source: str, record: ObjectRecord) -> None:
        if record.place is BodyPlace.FOLDER:
            _remove(source)
            return
        try:
            os.replace(source, self.path(record))
        except OSError:
            if record.place is BodyPlace.ASIDE:
                raise
            # Somebody outside took the room since it was chosen.
            aside = dataclasses.replace(record, place=BodyPlace.ASIDE)
            self._database.put(aside)
            os.replace(source, self.path(aside))

    def _free(self, bucket: str, name: str) -> None:
        """Lets those below a name move in after its file is gone."""
        below = f"{name}/".encode()
        for record in self._database.records_from(bucket, below, before=below[:-1] + b"0"):  # "0" comes after "/"
            self.move_in(record)

    def _prune(self, bucket: str, folder: str, *, implied: bool = True) -> None:
        """Removes folders without objects, upwards, as far as names alone imply them.

        Args:
          implied: whether that holds for the first one, too; an object ``folder/`` that goes takes its folder along.
        """
        while folder:
            marker = self._database.record(bucket, f"{folder}/")
            if marker is not None and marker.place is BodyPlace.FOLDER:
                return
            if not remove_folder(f"{self._layout.bucket_folder(bucket)}/{folder}", implied=implied):
                return
            implied = True
            if (waiting := self._database.record(bucket, folder)) is not None:
                self.move_in(waiting)
                return
            folder = os.path.dirname(folder)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
        os.unlink(path)
