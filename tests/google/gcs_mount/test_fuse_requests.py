"""Kernel requests that arrive at bad moments or have odd values."""

import errno
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from kernel import Kernel

from t5x_harness.google.gcs_mount.server import Operation
from t5x_harness.google.storage.disk import FilesLock
from t5x_harness.google.storage.errors import WouldWait


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    (tmp_path / "buckets" / "data").mkdir(parents=True)
    return Kernel(tmp_path)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return tmp_path / "buckets" / "data"


@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_WRONLY | os.O_TRUNC])
def test_a_file_replaced_between_look_up_and_opening_to_write_is_looked_up_again(
    kernel: Kernel, stored: Path, flags: int
) -> None:
    """Readers of the older generation neither pass it on to the writer nor see the bytes written to the newer one."""
    (stored / "f").write_bytes(b"older")
    reader, node = kernel.open("f", os.O_RDONLY), kernel.find("f")
    (stored / "g").write_bytes(b"newer")
    (stored / "g").rename(stored / "f")
    with pytest.raises(OSError, match="replaced or deleted") as caught:
        kernel.ask(Operation.OPEN, node, struct.pack("=2I", flags, 0))
    assert caught.value.errno == errno.ESTALE  # after which the kernel looks the file up again
    handle = kernel.open("f", flags)
    with pytest.raises(OSError, match="replaced or deleted"):
        kernel.read(reader)
    kernel.close(handle)
    assert (stored / "f").read_bytes() == (b"" if flags & os.O_TRUNC else b"newer")


def test_what_a_full_disk_did_not_store_is_read_by_none(
    kernel: Kernel, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stored / "f").write_bytes(b"before")
    writer = kernel.open("f", os.O_RDWR)
    kernel.write(writer, 0, b"lost")
    reader = kernel.open("f", os.O_RDONLY)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", full)
        with pytest.raises(OSError, match="No space left"):
            kernel.close(writer)
    with pytest.raises(OSError, match="replaced or deleted"):
        kernel.read(reader)
    assert kernel.read(kernel.open("f", os.O_RDONLY)) == (stored / "f").read_bytes() == b"before"


def test_no_descriptor_stays_open(kernel: Kernel, stored: Path) -> None:
    (stored / "f").write_bytes(b"x")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        handles = [kernel.open("f", flags) for flags in (os.O_RDONLY, os.O_RDWR, os.O_RDONLY)]
        kernel.write(handles[1], 0, b"y")
        for handle in (handles[1], handles[0], handles[2]):
            kernel.close(handle)
    assert len(os.listdir("/proc/self/fd")) == before


def test_all_of_a_folder_is_listed_while_it_is_emptied(kernel: Kernel, stored: Path) -> None:
    names = [f"{number:03}" for number in range(100)]
    for name in names:
        (stored / name).touch()
    folder, offset, seen = kernel.open_folder(), 0, []
    while entries := kernel.read_folder(folder, offset, 256):
        for name, offset in entries:  # noqa: B007 (the last one counts)
            seen.append(name)
            kernel.find(name)
            kernel.unlink(name)
    assert seen == names
    assert kernel.read_folder(folder, 0) == []  # rewinddir
    kernel.close_folder(folder)


def test_no_file_is_renamed_while_its_folder_is_listed(
    kernel: Kernel, stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, a listing might have the file under neither of its names."""
    scan, locked = os.scandir, []

    def scan_and_look(folder: bytes) -> Any:
        with pytest.raises(WouldWait), FilesLock(tmp_path, wait=False):
            pass
        locked.append(folder)
        return scan(folder)

    (stored / "f").touch()
    monkeypatch.setattr(os, "scandir", scan_and_look)
    assert kernel.listdir("") == ["f"]
    assert locked
    with FilesLock(tmp_path, wait=False):
        pass


def test_a_source_that_is_cut_while_it_is_copied(kernel: Kernel, stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (stored / "f").write_bytes(b"0123456789")
    copy = os.copy_file_range

    def copy_and_cut(source: int, target: int, count: int, *offsets: int) -> int:
        copied = copy(source, target, min(count, 4), *offsets)
        os.truncate(stored / "f", 4)
        return copied

    monkeypatch.setattr(os, "copy_file_range", copy_and_cut)
    handle = kernel.open("f", os.O_RDWR)
    assert kernel.read(handle) == b"0123"
    kernel.write(handle, 0, b"mine")
    with pytest.raises(OSError, match="replaced or deleted"):
        kernel.close(handle)


def test_a_file_that_is_replaced_while_it_is_opened_is_not_written_over(
    kernel: Kernel, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stored / "f").write_bytes(b"before")
    copy = os.copy_file_range

    def copy_and_replace(*arguments: int) -> int:
        copied = copy(*arguments)
        if (stored / "f").read_bytes() == b"before":
            (stored / "theirs").write_bytes(b"theirs")
            os.replace(stored / "theirs", stored / "f")
        return copied

    monkeypatch.setattr(os, "copy_file_range", copy_and_replace)
    handle = kernel.open("f", os.O_RDWR)
    kernel.write(handle, 0, b"mine")
    with pytest.raises(OSError, match="replaced or deleted"):
        kernel.close(handle)
    assert (stored / "f").read_bytes() == b"theirs"


def test_what_the_kernel_was_not_told_of_is_forgotten(
    kernel: Kernel, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stored / "f").write_bytes(b"x")
    known = dict(kernel.files.nodes)
    with monkeypatch.context() as patched:
        patched.setattr(kernel.files, "attributes", lambda node: os.stat("/nothing"))
        with pytest.raises(FileNotFoundError):
            kernel.find("f")
    assert kernel.files.nodes == known
    node = kernel.find("f")
    assert kernel.find("f") == node
    kernel.forget(node, 2)
    assert kernel.files.nodes == known


def test_times_before_1970(kernel: Kernel, stored: Path) -> None:
    (stored / "f").write_bytes(b"x")
    kernel.set_modified("f", -10)
    assert (stored / "f").stat().st_mtime == -10
    assert kernel.size("f") == 1
