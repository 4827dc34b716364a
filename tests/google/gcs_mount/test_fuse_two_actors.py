"""Writers and readers of the same files at a mount, beside others who write in the store: all see what they should."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from kernel import Kernel

NAMES = ["f", "g", "h"]
names = st.sampled_from(NAMES)


@dataclasses.dataclass(eq=False)
class File:
    """A file as those see it who have it open.

    Attributes:
      content: while somebody writes; None otherwise.
      base: the version in the store that the content goes back to; 0 for none.
      dirty: whether there is something to store.
      removed: whether its name is gone, or another's.
      writers: handles.
    """

    content: bytes | None = None
    base: int = 0
    dirty: bool = False
    removed: bool = False
    writers: int = 0


@dataclasses.dataclass(eq=False)
class Open:
    number: int
    file: File
    writes: bool
    kept: bytes = b""  # what a reader sees while nobody writes


class Mount(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="mount-"))
        self.tree = self.root / "buckets" / "data"
        self.tree.mkdir(parents=True)
        self.kernel = Kernel(self.root)
        self.stored: dict[str, tuple[bytes, int]] = {}
        self.files: dict[str, File] = {}
        self.handles: list[Open] = []
        self.count = 0
        self.folder: tuple[int, int, set[str], list[str]] | None = None

    def teardown(self) -> None:
        while self.handles:
            self.close_one(self.handles[0])
        shutil.rmtree(self.root)

    def version(self) -> int:
        self.count += 1
        return self.count

    def file(self, name: str) -> File:
        return self.files.setdefault(name, File())

    def exists(self, name: str) -> bool:
        return name in self.stored or self.file(name).content is not None

    @rule(name=names)
    def open_to_read(self, name: str) -> None:
        if not self.exists(name):
            with pytest.raises(FileNotFoundError):
                self.kernel.open(name, os.O_RDONLY)
            return
        number = self.kernel.open(name, os.O_RDONLY)
        self.handles.append(Open(number, self.file(name), False, self.stored.get(name, (b"", 0))[0]))

    @rule(name=names, truncate=st.booleans())
    def open_to_write(self, name: str, truncate: bool) -> None:
        flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if truncate else 0)
        file, existed = self.file(name), self.exists(name)
        number = self.kernel.open(name, flags)
        if file.content is None:
            file.content, file.base = self.stored.get(name, (b"", 0))
            file.dirty = not existed
        if truncate:
            file.content, file.dirty = b"", True
        file.writers += 1
        self.handles.append(Open(number, file, True))

    @precondition(lambda self: any(each.writes for each in self.handles))
    @rule(data=st.data(), offset=st.integers(0, 6))
    def write(self, data: st.DataObject, offset: int) -> None:
        one = data.draw(st.sampled_from([each for each in self.handles if each.writes]))
        body, file = f"<{self.version()}>".encode(), one.file
        self.kernel.write(one.number, offset, body)
        before = (file.content or b"").ljust(offset, b"\0")
        file.content, file.dirty = before[:offset] + body + before[offset + len(body) :], True

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.handles))
        expected = one.kept if one.file.content is None else one.file.content
        assert self.kernel.read(one.number) == expected

    def store(self, file: File) -> bool:
        """Stores what was written, as a close does; False if somebody else was there meanwhile."""
        if not file.dirty or file.removed:
            return True
        name = next(name for name, each in self.files.items() if each is file)
        if self.stored.get(name, (b"", 0))[1] != file.base:
            return False
        assert file.content is not None
        file.base, file.dirty = self.version(), False
        self.stored[name] = (file.content, file.base)
        return True

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.handles))
        if self.store(one.file):
            self.kernel.flush(one.number)
        else:
            with pytest.raises(OSError, match="replaced or deleted") as caught:
                self.kernel.flush(one.number)
            assert caught.value.errno == errno.ESTALE

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        self.close_one(data.draw(st.sampled_from(self.handles)))

    def close_one(self, one: Open) -> None:
        self.handles.remove(one)
        if self.store(one.file):
            self.kernel.close(one.number)
        else:
            with pytest.raises(OSError, match="replaced or deleted"):
                self.kernel.close(one.number)
        file = one.file
        file.writers -= one.writes
        if one.writes and not file.writers:
            for other in self.handles:
                if other.file is file:
                    assert file.content is not None
                    other.kept = file.content
            file.content, file.dirty = None, False

    @rule(name=names)
    def replaced_by_others(self, name: str) -> None:
        version = self.version()
        body = f"theirs-{version}".encode()
        (self.root / "beside").write_bytes(body)
        os.utime(self.root / "beside", ns=(version, version))
        os.replace(self.root / "beside", self.tree / name)
        self.stored[name] = (body, version)

    @rule(name=names)
    def deleted_by_others(self, name: str) -> None:
        if self.stored.pop(name, None):
            (self.tree / name).unlink()

    @rule(name=names)
    def set_modified(self, name: str) -> None:
        if self.exists(name):
            self.kernel.set_modified(name, self.version())

    @rule(name=names)
    def unlink(self, name: str) -> None:
        if not self.exists(name):
            with pytest.raises(FileNotFoundError):
                self.kernel.unlink(name)
            return
        self.kernel.find(name)
        self.kernel.unlink(name)
        self.stored.pop(name, None)
        self.file(name).removed = True
        del self.files[name]

    @rule(old=names, new=names)
    def rename(self, old: str, new: str) -> None:
        if old == new or not self.exists(old):
            return
        self.kernel.find(old)
        file = self.file(old)
        if not self.store(file):
            with pytest.raises(OSError, match="replaced or deleted"):
                self.kernel.rename(old, new)
            return
        if old not in self.stored:  # deleted by others after it was stored from here
            with pytest.raises(FileNotFoundError):
                self.kernel.rename(old, new)
            return
        self.kernel.rename(old, new)
        self.file(new).removed = True
        self.stored[new] = self.stored.pop(old)
        self.files[new] = self.files.pop(old)

    @precondition(lambda self: self.folder is None)
    @rule()
    def open_folder(self) -> None:
        self.folder = (self.kernel.open_folder(), 0, {name for name in NAMES if self.exists(name)}, [])

    @precondition(lambda self: self.folder)
    @rule(size=st.sampled_from([32, 64]))
    def read_folder(self, size: int) -> None:
        assert self.folder is not None
        handle, offset, before, seen = self.folder
        if offset == 0:
            before = {name for name in NAMES if self.exists(name)}
        entries = self.kernel.read_folder(handle, offset, size)
        seen = [*seen, *(name for name, _ in entries)]
        if entries:
            self.folder = (handle, entries[-1][1], before, seen)
            return
        assert len(seen) == len(set(seen))
        assert {name for name in before if self.exists(name)} <= set(seen)
        self.kernel.close_folder(handle)
        self.folder = None

    @rule(name=names)
    def look(self, name: str) -> None:
        file = self.file(name)
        if self.exists(name):
            assert self.kernel.size(name) == len(self.stored[name][0] if file.content is None else file.content)
        else:
            with pytest.raises(FileNotFoundError):
                self.kernel.size(name)
        assert (self.tree / name).exists() == (name in self.stored)
        if name in self.stored:
            assert (self.tree / name).read_bytes() == self.stored[name][0]


TestMount = Mount.TestCase
TestMount.settings = settings(
    max_examples=int(os.environ.get("MOUNT_EXAMPLES", "150")),
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # making an example smaller takes minutes
    derandomize="MOUNT_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
