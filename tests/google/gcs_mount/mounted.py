"""A process that sees a store through a private mount, and makes the requested system calls."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from t5x_harness.google.gcs_mount.mount import MountMode
from t5x_harness.google.gcs_mount.probing import command_prefix, refusal

_PROGRAM = """
import json, os, sys
calls = {
    "size": lambda file: os.stat(file).st_size,
    "set_modified": lambda path, seconds: os.utime(path, (seconds, seconds)),
    "pwrite": lambda file, data, offset: os.pwrite(file, bytes(data), offset),
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
    """The calls of a process at a mount in the mode ``fuse``; errors are raised as OSError.

    Args:
      root: the root of the store.
    """

    def __init__(self, root: Path) -> None:
        words = [*command_prefix(root, MountMode.FUSE), sys.executable, "-I", "-S", "-c", _PROGRAM]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.bucket = "data"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Returns any other function of ``os``, by its name; arguments that are strings are paths in the bucket."""
        return lambda *arguments: self._ask(name, *arguments)

    def begin(self, name: str, *arguments: Any) -> None:
        """Makes the process begin a call; :meth:`end` waits for the result."""
        assert self._process.stdin, "it is a pipe"
        places = [f"/gcs/{self.bucket}/{each}" if isinstance(each, str) else each for each in arguments]
        print(json.dumps([name, *places]), file=self._process.stdin, flush=True)

    def end(self) -> Any:
        assert self._process.stdout, "it is a pipe"
        number, found = json.loads(self._process.stdout.readline())
        if number:
            raise OSError(number, found)
        return found

    def _ask(self, name: str, *arguments: Any) -> Any:
        self.begin(name, *arguments)
        return self.end()

    def read(self, handle: int, offset: int = 0) -> bytes:
        return str(self._ask("pread", handle, 1 << 16, offset)).encode("latin-1")

    def write(self, handle: int, offset: int | None, data: bytes) -> None:
        """Writes at an offset; None is the end of the file."""
        at = self._ask("size", handle) if offset is None else offset
        assert self._ask("pwrite", handle, list(data), at) == len(data)

    def flush(self, handle: int) -> None:
        self._ask("fsync", handle)


def needs(mode: MountMode) -> None:
    """Skips a test for a mode that this machine refuses."""
    if refused := refusal(mode):
        pytest.skip(f"/gcs in mode {mode} cannot be mounted here: {refused}")
