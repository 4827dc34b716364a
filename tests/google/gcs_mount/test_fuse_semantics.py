"""The mode fuse behaves like Cloud Storage FUSE in ways in which a folder does not."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mounted import needs

from t5x_harness.google.gcs_mount.mount import MountMode

Inside = Callable[..., Any]

# The names that code run in the mount can use.
PRELUDE = """
import errno, pathlib
gcs = pathlib.Path("/gcs/my-bucket")
def refused(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
"""


@pytest.fixture
def fuse(inside: Inside, bucket: Path) -> Inside:
    """Runs code with ``gcs`` (the mounted bucket), ``store`` (its folder in the store) and ``refused``."""
    needs(MountMode.FUSE)

    def run(code: str) -> Any:
        return inside(f"{PRELUDE}store = pathlib.Path({str(bucket)!r})\n{code}", mode=MountMode.FUSE)

    return run


@pytest.mark.parametrize("how", ["w", "a", "r+"])
def test_ways_to_open_for_writing(fuse: Inside, bucket: Path, how: str) -> None:
    fuse(f"with open(gcs / 'data' / 'hello.txt', {how!r}) as file:\n    file.write('J')")
    assert (bucket / "data" / "hello.txt").read_text() == {"w": "J", "a": "helloJ", "r+": "Jello"}[how]


def test_folders_that_hold_anything_are_not_renamed(fuse: Inside) -> None:
    code = """
(gcs / "empty").mkdir()
(gcs / "open").mkdir()
file = open(gcs / "open" / "new", "w")
result = [
    refused(os.rename, gcs / "data", gcs / "moved"),
    refused(os.rename, gcs / "open", gcs / "moved"),
    refused(os.rename, gcs / "empty", gcs / "moved"),
    sorted(os.listdir(gcs)),
]
"""
    assert fuse(code) == ["EMFILE", "ENOTSUP", None, ["data", "moved", "open"]]


def test_files_are_renamed_within_a_bucket(fuse: Inside, root: Path) -> None:
    (root / "buckets" / "other-bucket").mkdir()
    code = """
os.rename(gcs / "data" / "hello.txt", gcs / "hello.txt")
(gcs / "two").write_text("2")
os.replace(gcs / "two", gcs / "hello.txt")
result = [(gcs / "hello.txt").read_text(), os.listdir(gcs / "data"), os.listdir(gcs),
          refused(os.rename, gcs / "hello.txt", "/gcs/other-bucket/hello.txt")]
"""
    assert fuse(code) == ["2", [], ["data", "hello.txt"], "ENOTSUP"]


def test_a_file_renamed_while_it_is_written_is_stored_and_its_writer_is_left_with_a_stale_handle(fuse: Inside) -> None:
    code = """
def renamed(name):
    file = os.open(gcs / "tmp", os.O_CREAT | os.O_RDWR)
    os.write(file, b"abc")
    os.rename(gcs / "tmp", gcs / name)
    return file
result = [refused(os.close, renamed("closed"))]
file = renamed("written")
os.write(file, b"def")
result += [refused(os.close, file), (store / "closed").read_text(), (gcs / "written").read_text(), os.listdir(gcs)]
"""
    assert fuse(code) == [None, "ESTALE", "abc", "abc", ["closed", "data", "written"]]


def test_buckets_are_neither_listed_nor_made_nor_removed(fuse: Inside, root: Path) -> None:
    (root / "buckets" / "empty-bucket").mkdir()
    code = """
result = [refused(os.listdir, "/gcs"), refused(os.mkdir, "/gcs/new-bucket"), refused(os.rmdir, "/gcs/empty-bucket"),
          refused(open, "/gcs/file", "w"), refused(os.listdir, "/gcs/no-bucket"), os.listdir("/gcs/empty-bucket")]
(gcs / "file").write_text("still possible")
"""
    assert fuse(code) == ["ENOTSUP", "ENOSYS", "ENOSYS", "ENOTSUP", "ENOENT", []]


def test_modes_and_owners_are_fixed_and_times_are_kept(fuse: Inside) -> None:
    code = """
path = gcs / "data" / "hello.txt"
os.chmod(path, 0o600)
os.utime(path, (5, 6))
found, folder = os.stat(path), os.stat(gcs)
stored = (store / "data" / "hello.txt").stat()
result = [oct(found.st_mode), found.st_uid, found.st_mtime, oct(folder.st_mode), stored.st_mtime]
"""
    assert fuse(code) == ["0o100644", os.getuid(), 6, "0o40755", 6]


def test_what_storage_has_not_is_refused(fuse: Inside) -> None:
    code = """
path = gcs / "data" / "hello.txt"
result = [refused(os.symlink, "x", gcs / "link"), refused(os.mkfifo, gcs / "fifo"),
          refused(os.getxattr, path, "user.x"), refused(os.rmdir, gcs / "data")]
"""
    assert fuse(code) == ["ENOTSUP", "ENOTSUP", "ENOTSUP", "ENOTEMPTY"]
    assert errno.ENOTSUP == errno.EOPNOTSUPP


def test_large_files_and_folders_come_back_whole(fuse: Inside) -> None:
    code = """
import hashlib, random
data = random.Random(3).randbytes(5_000_003)
(gcs / "large").write_bytes(data)
(gcs / "many").mkdir()
for number in range(700):
    (gcs / "many" / f"a-name-of-some-length-{number:04}").write_text(str(number))
names = sorted(os.listdir(gcs / "many"))
result = [(gcs / "large").read_bytes() == data, (store / "large").read_bytes() == data, len(names),
          all((gcs / "many" / name).read_text() == str(int(name[-4:])) for name in names)]
"""
    assert fuse(code) == [True, True, 700, True]


def test_what_others_write_is_seen_at_once(fuse: Inside) -> None:
    code = """
path = gcs / "data" / "hello.txt"
result = [path.read_text()]
(store / "data" / "hello.txt").write_text("changed and longer")
(store / "data" / "more").write_text("more")
result += [path.read_text(), (gcs / "data" / "more").read_text(), sorted(os.listdir(gcs / "data"))]
(store / "data" / "more").unlink()
result.append(refused(os.stat, gcs / "data" / "more"))
"""
    assert fuse(code) == ["hello", "changed and longer", "more", ["hello.txt", "more"], "ENOENT"]


def test_writer_and_reader_and_a_folder_that_is_emptied(fuse: Inside, bucket: Path) -> None:
    code = """
with open(gcs / "records", "wb", buffering=0) as file:
    for number in range(200):
        file.write(b"%03d\\n" % number)
        os.close(os.open(gcs / "records", os.O_RDONLY))
os.mkdir(gcs / "many")
for number in range(500):
    (store / "many" / f"{number:0100}").touch()
for entry in os.scandir(gcs / "many"):
    os.unlink(entry.path)
result = os.listdir(gcs / "many")
"""
    assert fuse(code) == []
    assert (bucket / "records").read_bytes() == b"".join(b"%03d\n" % number for number in range(200))
