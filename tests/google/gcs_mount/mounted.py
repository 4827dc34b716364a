"""A process that sees a store through a mount of its own, and makes the system calls that it is asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import pytest

from t5x_harness.google.gcs_mount import MountMode, command_prefix, probe

__all__ = ["Mounted", "needs"]

_PROGRAM = """
import json, os, sys
calls = {
    "size": lambda file: os.stat(file).st_size,
    "set_modified": lambda path, seconds: os.utime(path, (seconds, seconds)),
    "pwrite": lambda file, data, offset: os.pwrite(file, data.encode("latin-1"), offset),
}
for line in sys.stdin:
    name, *arguments = json.loads(line)
    try:
        found = calls[name](*arguments) if name in calls else getattr(os, name)(*arguments)
        answer = [0, found.decode("latin-1") if isinstance(found, bytes) else found]
    except OSError as error:
        answer = [error.errno, error.strerror]
    print(json.dumps(answer), flush=True)
"""


class Mounted:
    """The calls of a process at a mount as Cloud Storage FUSE; errors are raised as OSError.

    Args:
      root: of the store.
    """

    def __init__(self, root: Path) -> None:
        words = [*command_prefix(root, MountMode.FUSE), sys.executable, "-I", "-S", "-c", _PROGRAM]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.bucket = "data"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def begin(self, name: str, *paths: str) -> None:
        """Has the process make a call; :meth:`end` waits for it."""
        self._begin(name, *map(self._path, paths))

    def _ask(self, name: str, *arguments: Any) -> Any:
        self._begin(name, *arguments)
        return self.end()

    def _begin(self, name: str, *arguments: Any) -> None:
        assert self._process.stdin, "it is a pipe"
        print(json.dumps([name, *arguments]), file=self._process.stdin, flush=True)

    def end(self) -> Any:
        assert self._process.stdout, "it is a pipe"
        number, found = json.loads(self._process.stdout.readline())
        if number:
            raise OSError(number, found)
        return found

    def _path(self, path: str) -> str:
        return f"/gcs/{self.bucket}/{path}"

    def open(self, path: str, flags: int) -> int:
        return int(self._ask("open", self._path(path), flags))

    def read(self, handle: int, offset: int = 0) -> bytes:
        return str(self._ask("pread", handle, 1 << 16, offset)).encode("latin-1")

    def write(self, handle: int, offset: int | None, data: bytes) -> None:
        """Writes at an offset; None is the end."""
        at = self._ask("size", handle) if offset is None else offset
        assert self._ask("pwrite", handle, data.decode("latin-1"), at) == len(data)

    def flush(self, handle: int) -> None:
        self._ask("fsync", handle)

    def close(self, handle: int) -> None:
        self._ask("close", handle)

    def unlink(self, path: str) -> None:
        self._ask("unlink", self._path(path))

    def mkdir(self, path: str) -> None:
        self._ask("mkdir", self._path(path))

    def rmdir(self, path: str) -> None:
        self._ask("rmdir", self._path(path))

    def rename(self, old: str, new: str) -> None:
        self._ask("rename", self._path(old), self._path(new))

    def size(self, path: str) -> int:
        return int(self._ask("size", self._path(path)))

    def truncate(self, path: str, size: int) -> None:
        self._ask("truncate", self._path(path), size)

    def ftruncate(self, handle: int, size: int) -> None:
        self._ask("ftruncate", handle, size)

    def set_modified(self, path: str, seconds: int) -> None:
        self._ask("set_modified", self._path(path), seconds)

    def listdir(self, path: str) -> list[str]:
        return list(self._ask("listdir", self._path(path)))


def needs(mode: MountMode) -> None:
    """Skips a test for a mode that this machine refuses."""
    found = probe()
    refused = found.refused if mode is MountMode.FOLDER else found.fuse_refused
    if refused is not None:
        pytest.skip(f"/gcs in mode {mode} cannot be mounted here: {refused}")
