"""The mode fuse behaves like Cloud Storage FUSE in ways in which a folder does not."""

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


def test_buckets_are_neither_listed_nor_made_nor_removed(fuse: Inside, root: Path) -> None:
    (root / "buckets" / "empty-bucket").mkdir()
    code = """
result = [refused(os.listdir, "/gcs"), refused(os.mkdir, "/gcs/new-bucket"), refused(os.rmdir, "/gcs/empty-bucket"),
          refused(open, "/gcs/file", "w"), refused(os.listdir, "/gcs/no-bucket"), os.listdir("/gcs/empty-bucket"),
          refused(os.rename, gcs / "data" / "hello.txt", "/gcs/empty-bucket/hello.txt")]
(gcs / "file").write_text("still possible")
"""
    assert fuse(code) == ["ENOTSUP", "ENOSYS", "ENOSYS", "ENOTSUP", "ENOENT", [], "ENOTSUP"]


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
