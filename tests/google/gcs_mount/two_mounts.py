"""Two mounts of a store and Cloud Storage's own API as actors, and a model of what each of them should see."""

import contextlib
import dataclasses
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kernel import Kernel
from mounted import Mounted

from t5x_harness.google.storage.errors import NoSuchResource, PreconditionFailed
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import ANY, Preconditions, SourceObject, StoredObject

FILES, FOLDERS = ["f", "g", "d/f", "d/e/f"], ["d", "h", "d/e"]
files, folders = st.sampled_from(FILES), st.sampled_from(FOLDERS)
mounts = st.integers(0, 1)
conditions = st.sampled_from(["none", "none", "live", "older", "absent"])
bodies = st.sampled_from([b"", b"short", b"a body"])


Calls = Kernel | Mounted
"""The calls that processes make at a mount."""


@dataclasses.dataclass(eq=False)
class File:
    """A generation of a file, as seen by processes that have it open at a mount.

    Attributes:
      version: the version of the stored content; 0 if nothing is stored.
      body: the stored content.
      content: the content at the mount while it is open for writing; None otherwise.
      unsaved: whether the content still has to be stored.
      removed: whether this mount has removed or replaced the file.
    """

    name: str
    version: int
    body: bytes
    content: bytes | None = None
    unsaved: bool = False
    removed: bool = False
    writers: int = 0


@dataclasses.dataclass(eq=False)
class Open:
    number: int
    file: File
    writes: bool


class Mount:
    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.named: dict[str, File] = {}
        self.handles: list[Open] = []

    def unname(self, file: File) -> None:
        if self.named.get(file.name) is file:
            del self.named[file.name]


def above(name: str) -> str:
    return os.path.dirname(name)


class TwoMounts(RuleBasedStateMachine):
    """The state machine of the mounts, the API and the model.

    Args:
      keeps_pages: whether readers may get pages that the kernel has read before, instead of ESTALE.
    """

    def __init__(self, store: ObjectStore, bucket: str, calls: Sequence[Calls], *, keeps_pages: bool) -> None:
        super().__init__()
        self.store, self.bucket, self.keeps_pages = store, bucket, keeps_pages
        self.mounts = [Mount(each) for each in calls]
        self.stored: dict[str, tuple[bytes, int]] = {}
        self.folders: dict[str, bool] = {"": False}  # whether only the names of objects imply the folder
        self.markers: set[str] = set()  # objects such as d/
        self.generations: dict[int, int] = {}  # of versions
        self.count = 0

    def teardown(self) -> None:
        for mount in self.mounts:
            while mount.handles:
                self.close_one(mount, mount.handles[0])
        assert os.listdir(self.store._core.layout.incoming) == []

    # The model's content, and the answers that an actor should get.

    def new_version(self) -> int:
        self.count += 1
        return self.count

    def put(self, name: str, body: bytes) -> int:
        """Stores an object, with the folders that its name implies."""
        self.imply(above(name))
        self.stored[name] = (body, self.new_version())
        return self.count

    def imply(self, folder: str) -> None:
        while folder not in self.folders:
            self.folders[folder] = True
            folder = above(folder)

    def is_empty(self, folder: str) -> bool:
        return all(above(name) != folder for name in [*self.stored, *(it for it in self.folders if it)])

    def prune(self, folder: str, *, implied: bool = True) -> None:
        while folder and folder not in self.markers and self.is_empty(folder):
            if implied and not self.folders.get(folder):
                return
            self.folders.pop(folder, None)
            folder, implied = above(folder), True

    def look_up(self, mount: Mount, name: str) -> File | None:
        if above(name) not in self.folders:
            return None
        known = mount.named.get(name)
        if known and known.unsaved:
            return known
        if name not in self.stored:
            return None
        body, version = self.stored[name]
        if not known or known.version != version:
            known = mount.named[name] = File(name, version, body)
        return known

    def is_live(self, file: File) -> bool:
        return not file.removed and self.stored.get(file.name, (b"", 0))[1] == file.version

    def save(self, file: File) -> int:
        """Stores the written content, as a close does; returns the expected error number, or 0."""
        if not file.unsaved or file.removed:
            return 0
        if not self.is_live(file):
            return errno.ESTALE
        assert file.content is not None
        file.version, file.unsaved = self.put(file.name, file.content), False
        return 0

    def leave(self, mount: Mount, file: File) -> None:
        if file.content is not None and not file.writers:
            if file.unsaved:
                mount.unname(file)
                file.version = -1  # lost
            file.body, file.content, file.unsaved = file.content, None, False

    @contextlib.contextmanager
    def answered(self, error: int) -> Iterator[None]:
        if not error:
            yield
            return
        with pytest.raises(OSError) as caught:  # noqa: PT011 (its number is checked)
            yield
        assert errno.errorcode[caught.value.errno or 0] == errno.errorcode[error]

    def unsaved_in(self, mount: Mount, folder: str) -> list[str]:
        return [os.path.basename(it.name) for it in mount.named.values() if it.unsaved and above(it.name) == folder]

    # The operations of processes at the mounts.

    @rule(at=mounts, name=files)
    def open_to_read(self, at: int, name: str) -> None:
        mount = self.mounts[at]
        file = self.look_up(mount, name)
        with self.answered(0 if file else errno.ENOENT):
            number = mount.calls.open(name, os.O_RDONLY)
        if file:
            mount.handles.append(Open(number, file, False))

    @rule(at=mounts, name=files, truncate=st.booleans())
    def open_to_write(self, at: int, name: str, truncate: bool) -> None:
        mount = self.mounts[at]
        file = self.look_up(mount, name)
        with self.answered(0 if above(name) in self.folders else errno.ENOENT):
            number = mount.calls.open(name, os.O_RDWR | os.O_CREAT | (os.O_TRUNC if truncate else 0))
        if above(name) not in self.folders:
            return
        if file is None:
            file = mount.named[name] = File(name, 0, b"", b"", unsaved=True)
        if file.content is None:
            file.content = file.body
        if truncate:
            file.content, file.unsaved = b"", True
        file.writers += 1
        mount.handles.append(Open(number, file, True))

    def one_open(self, data: st.DataObject, *, writes: bool = False) -> tuple[Mount, Open]:
        found = [(mount, it) for mount in self.mounts for it in mount.handles if it.writes or not writes]
        return data.draw(st.sampled_from(found))

    @precondition(lambda self: any(it.writes for mount in self.mounts for it in mount.handles))
    @rule(data=st.data(), offset=st.none() | st.integers(0, 6))
    def write(self, data: st.DataObject, offset: int | None) -> None:
        mount, one = self.one_open(data, writes=True)
        body, file = f"<{self.new_version()}>".encode(), one.file
        mount.calls.write(one.number, offset, body)
        start = len(file.content or b"") if offset is None else offset
        before = (file.content or b"").ljust(start, b"\0")
        file.content, file.unsaved = before[:start] + body + before[start + len(body) :], True

    @precondition(lambda self: any(it.writes for mount in self.mounts for it in mount.handles))
    @rule(data=st.data(), size=st.integers(0, 9))
    def cut(self, data: st.DataObject, size: int) -> None:
        mount, one = self.one_open(data, writes=True)
        mount.calls.ftruncate(one.number, size)
        one.file.content, one.file.unsaved = (one.file.content or b"")[:size].ljust(size, b"\0"), True

    @precondition(lambda self: any(mount.handles for mount in self.mounts))
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        """Reads an open file, which never yields a byte of another generation."""
        mount, one = self.one_open(data)
        file = one.file
        if file.content is not None or self.is_live(file):
            assert mount.calls.read(one.number) == (file.body if file.content is None else file.content)
            return
        try:
            assert mount.calls.read(one.number) == file.body
            assert self.keeps_pages
        except OSError as error:
            assert error.errno == errno.ESTALE  # noqa: PT017 (it need not be raised)

    @precondition(lambda self: any(mount.handles for mount in self.mounts))
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        mount, one = self.one_open(data)
        with self.answered(self.save(one.file)):
            mount.calls.flush(one.number)

    @precondition(lambda self: any(mount.handles for mount in self.mounts))
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        self.close_one(*self.one_open(data))

    def close_one(self, mount: Mount, one: Open) -> None:
        mount.handles.remove(one)
        with self.answered(self.save(one.file)):
            mount.calls.close(one.number)
        one.file.writers -= one.writes
        self.leave(mount, one.file)

    @rule(at=mounts, name=files, size=st.integers(0, 9))
    def truncate(self, at: int, name: str, size: int) -> None:
        mount = self.mounts[at]
        file = self.look_up(mount, name)
        with self.answered(0 if file else errno.ENOENT):
            mount.calls.truncate(name, size)
        if file:
            content = file.body if file.content is None else file.content
            file.content, file.unsaved = content[:size].ljust(size, b"\0"), True
            if not file.writers:
                assert self.save(file) == 0
                self.leave(mount, file)

    @rule(at=mounts, name=files)
    def set_modified(self, at: int, name: str) -> None:
        mount = self.mounts[at]
        file = self.look_up(mount, name)
        with self.answered(0 if file else errno.ENOENT):
            mount.calls.set_modified(name, self.new_version())
        if file and not file.unsaved:
            file.version = self.new_version()
            self.stored[name] = (self.stored[name][0], file.version)

    @rule(at=mounts, name=files)
    def unlink(self, at: int, name: str) -> None:
        mount = self.mounts[at]
        file = self.look_up(mount, name)
        with self.answered(0 if file else errno.ENOENT):
            mount.calls.unlink(name)
        if file:
            self.stored.pop(name, None)
            file.removed = True
            mount.unname(file)

    @rule(at=mounts, old=files, new=files)
    def rename(self, at: int, old: str, new: str) -> None:
        mount = self.mounts[at]
        file = self.look_up(mount, old)
        if old == new:
            return
        there = file and above(new) in self.folders
        failed = errno.ENOENT if not file or not there else self.save(file)
        with self.answered(failed):
            mount.calls.rename(old, new)
        if file and not failed:
            self.look_up(mount, new)
            if replaced := mount.named.pop(new, None):
                replaced.removed = True
            mount.unname(file)
            self.stored[new] = (self.stored.pop(old)[0], self.new_version())

    @rule(at=mounts, name=folders)
    def make_folder(self, at: int, name: str) -> None:
        there = errno.EEXIST if name in self.folders else 0
        with self.answered(there if above(name) in self.folders else errno.ENOENT):
            self.mounts[at].calls.mkdir(name)
        if above(name) in self.folders:
            self.folders.setdefault(name, False)

    @rule(at=mounts, name=folders)
    def remove_folder(self, at: int, name: str) -> None:
        mount = self.mounts[at]
        taken = 0 if self.is_empty(name) and not self.unsaved_in(mount, name) else errno.ENOTEMPTY
        failed = taken if name in self.folders else errno.ENOENT
        with self.answered(failed):
            mount.calls.rmdir(name)
        if not failed:
            del self.folders[name]
            self.markers.discard(name)

    @rule(at=mounts, names=st.sampled_from([("d", "h"), ("h", "d"), ("d/e", "h"), ("h", "d/e")]))
    def rename_folder(self, at: int, names: tuple[str, str]) -> None:
        mount, (old, new) = self.mounts[at], names
        failed = 0
        if old not in self.folders or above(new) not in self.folders:
            failed = errno.ENOENT
        elif self.unsaved_in(mount, old):
            failed = errno.ENOTSUP
        elif not self.is_empty(old):
            failed = errno.EMFILE
        elif new in self.folders and not self.is_empty(new):
            failed = errno.ENOTEMPTY
        with self.answered(failed):
            mount.calls.rename(old, new)
        if not failed:
            self.folders[new] = self.folders.pop(old)
            self.markers.discard(old)

    @rule(at=mounts, name=files)
    def look(self, at: int, name: str) -> None:
        """Opens a file, which shows the content that was stored last, or that this mount is about to store."""
        mount = self.mounts[at]
        file = self.look_up(mount, name)
        with self.answered(0 if file else errno.ENOENT):
            size = mount.calls.size(name)
        if file:
            content = file.body if file.content is None else file.content
            assert size == len(content)
            number = mount.calls.open(name, os.O_RDONLY)
            assert mount.calls.read(number) == content
            with self.answered(self.save(file)):
                mount.calls.close(number)

    @rule(at=mounts, name=st.sampled_from(["", *FOLDERS]))
    def list_folder(self, at: int, name: str) -> None:
        mount = self.mounts[at]
        with self.answered(0 if name in self.folders else errno.ENOENT):
            found = sorted(mount.calls.listdir(name))
        if name in self.folders:
            inside = {os.path.basename(it) for it in [*self.stored, *self.folders] if it and above(it) == name}
            assert found == sorted(inside | set(self.unsaved_in(mount, name)))

    # The requests of clients to Cloud Storage.

    def asked(
        self, name: str, condition: str, call: Callable[[Preconditions], StoredObject | None]
    ) -> StoredObject | None:
        """Makes a call with a condition on a name's generation; returns None if it does not hold or nothing is done."""
        version = self.stored.get(name, (b"", 0))[1]
        before = [each for each in self.generations if each < version]
        wanted = {"live": version, "older": before[-1] if before else 0, "absent": 0}.get(condition)
        number = None if wanted is None else self.generations.get(wanted, 0)
        if wanted not in (None, version):
            with pytest.raises(PreconditionFailed):
                call(Preconditions(generation_match=number))
            return None
        return call(ANY if number is None else Preconditions(generation_match=number))

    @rule(name=files, body=bodies, condition=conditions)
    def api_write(self, name: str, body: bytes, condition: str) -> None:
        body += f" {self.new_version()}".encode() if body else b""
        if self.asked(name, condition, lambda on: self.store.write(self.bucket, name, body, preconditions=on)):
            self.put(name, body)

    @rule(name=files, condition=conditions)
    def api_delete(self, name: str, condition: str) -> None:
        if name not in self.stored:
            with pytest.raises(NoSuchResource):
                self.store.delete(self.bucket, name)
            return
        done: list[bool] = []

        def delete(on: Preconditions) -> None:
            self.store.delete(self.bucket, name, preconditions=on)
            done.append(True)

        self.asked(name, condition, delete)
        if done:
            del self.stored[name]
            self.prune(above(name))

    @precondition(lambda self: self.stored)
    @rule(data=st.data(), name=files, condition=conditions)
    def api_move(self, data: st.DataObject, name: str, condition: str) -> None:
        source = data.draw(st.sampled_from(sorted(self.stored)))
        if source == name:
            return
        if self.asked(name, condition, lambda on: self.store.move(SourceObject(self.bucket, source), name, on)):
            body, _ = self.stored.pop(source)
            self.put(name, body)
            self.prune(above(source))

    @precondition(lambda self: self.stored)
    @rule(data=st.data(), name=files, condition=conditions, compose=st.booleans())
    def api_copy(self, data: st.DataObject, name: str, condition: str, compose: bool) -> None:
        source = data.draw(st.sampled_from(sorted(self.stored)))
        body, it = self.stored[source][0] * (1 + compose), SourceObject(self.bucket, source)
        if self.asked(
            name,
            condition,
            lambda on: (
                self.store.compose(self.bucket, name, [it, it], preconditions=on)
                if compose
                else self.store.copy(it, self.bucket, name, preconditions=on)
            ),
        ):
            self.put(name, body)

    @rule(name=st.sampled_from(["d", "h"]))
    def api_make_folder(self, name: str) -> None:
        self.store.write(self.bucket, f"{name}/", b"")
        self.imply(name)
        self.markers.add(name)

    @precondition(lambda self: self.markers)
    @rule(data=st.data())
    def api_delete_folder(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.markers)))
        self.store.delete(self.bucket, f"{name}/")
        self.markers.discard(name)
        self.prune(name, implied=False)

    @invariant()
    def api_list(self) -> None:
        """Checks that a listing has all stored objects, and that each version keeps its own generation."""
        listed: dict[str, Any] = {it.name: it for it in self.store.list(self.bucket).objects}
        assert sorted(listed) == sorted([*self.stored, *(f"{name}/" for name in self.markers)])
        for name, (body, version) in self.stored.items():
            assert self.generations.setdefault(version, listed[name].generation) == listed[name].generation
            with self.store.open_read(self.bucket, name) as reader:
                assert reader.read() == body
        assert len(set(self.generations.values())) == len(self.generations)
