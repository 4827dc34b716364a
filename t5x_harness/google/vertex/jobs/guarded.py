"""A process of a job as the server sees it: its folders, output and end; and how the server waits for several."""

import contextlib
import dataclasses
import json
import os
import select
import selectors
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from t5x_harness.google.vertex.jobs import python_environment
from t5x_harness.google.vertex.jobs.endings import KILLED
from t5x_harness.google.vertex.jobs.guard import STOP
from t5x_harness.google.vertex.jobs.logs import LineSplitter
from t5x_harness.google.vertex.jobs.machine import Exited


def make_empty(folders: Iterable[Path]) -> None:
    """Makes empty folders in place of anything that an earlier process left at their paths; raises OSError."""
    for folder in folders:
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        elif folder.exists():
            for at, names, _ in os.walk(folder):  # a process may make folders read-only, as Go does with its caches
                for path in (os.path.join(at, name) for name in names):
                    if not os.path.islink(path):
                        os.chmod(path, 0o700)
            shutil.rmtree(folder)
        folder.mkdir(parents=True)


# The guard depends on neither the import path nor the environment of the job, and starts as fast as Python can.
_BOOT = "import sys; sys.path.append({parent!r}); from {module} import main; main(sys.argv[1:])"


@dataclasses.dataclass(frozen=True)
class Task:
    """A process to start.

    Attributes:
      environment: the whole environment. It never appears in a message or a file, because it may hold a user's secrets.
      home: the folder of its HOME, in which its Python environment is made as it starts; None if it has no such folder.
      own: the folders that belong to the process and not to its image, including its HOME; initially empty.
      copies: its own folders that initially have contents, each with the folder of which it is a copy.
      links: symbolic links in its own folders, each with its target.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str] = dataclasses.field(repr=False)
    folder: Path
    home: Path | None = None
    own: tuple[Path, ...] = ()
    copies: Mapping[Path, Path] = dataclasses.field(default_factory=dict)
    links: Mapping[Path, Path] = dataclasses.field(default_factory=dict)

    def make_folders(self) -> None:
        """Makes the process's own folders with their initial contents; raises OSError."""
        make_empty(self.own)
        for folder, original in self.copies.items():
            shutil.copytree(original, folder, dirs_exist_ok=True)
        for link, place in self.links.items():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(place)


class Guarded:
    """A process under its own guard, which starts immediately.

    Args:
      inherits: descriptors that the process inherits in addition to its output.

    Attributes:
      output: the read end of the pipe for its standard output; closed by :meth:`close`.
      errors: the same for standard error.
      link: a connection that is readable once :meth:`status` can return without waiting.
    """

    def __init__(self, task: Task, inherits: tuple[int, ...] = ()) -> None:
        task.make_folders()
        if task.home is not None:
            python_environment.make(task.home)
        boot = _BOOT.format(parent=str(Path(__file__).resolve().parents[4]), module=f"{__package__}.guard")
        self.link, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as unless_started:
            unless_started.callback(self.link.close)
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", boot, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(), *inherits),
                start_new_session=True,
                cwd="/",
                env={},
            )
            unless_started.pop_all()
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.output, self.errors = self._process.stdout.fileno(), self._process.stderr.fileno()
        order = {"words": list(task.words), "environment": dict(task.environment), "folder": str(task.folder)}
        with contextlib.suppress(ConnectionError):  # if the guard has ended, its status shows that
            self.link.sendall(json.dumps(order).encode() + b"\n")

    @property
    def guard(self) -> int:
        return self._process.pid

    def stop(self, grace: float) -> None:
        """Tells the process to end: SIGTERM now, and SIGKILL for it and its descendants after ``grace`` seconds.

        May be called again; the earliest deadline counts.
        """
        with contextlib.suppress(OSError):  # it has ended
            self.link.sendall(STOP + f"{grace}\n".encode())

    def status(self) -> int:
        """Waits until it has ended, and returns its exit status, as a shell reports it."""
        text = b""
        with contextlib.suppress(ConnectionError):
            while data := self.link.recv(4096):
                text += data
        self._process.wait()
        return int(json.loads(text)["status"]) if text else KILLED

    def close(self) -> None:
        """Immediately ends everything that is still running, and releases all resources."""
        self.link.close()
        with self._process:  # closes the pipes
            self._process.wait()


_CHUNK = 1 << 16
# The system accepts no longer wait, because it counts milliseconds in 31 bits; a job may run for months.
_LONGEST_WAIT = 24 * 3600.0
# The streams, with the severity that the service gives each.
_SEVERITIES = {"output": "INFO", "errors": "ERROR"}


@dataclasses.dataclass(frozen=True)
class UnitSaid:
    """A unit wrote lines to one of its streams."""

    unit: str
    lines: tuple[str, ...]
    severity: str


class Watched:
    """The processes of one job. Only :meth:`wake` may be called from another thread."""

    def __init__(self, start: Callable[[Task], Guarded] = Guarded) -> None:
        self._start = start
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._closed = False
        self._awake, self._waker = os.pipe()
        os.set_blocking(self._awake, False)
        os.set_blocking(self._waker, False)
        self._selector.register(self._awake, selectors.EVENT_READ, None)
        self._units: dict[str, Guarded] = {}
        self._lines: dict[tuple[str, str], LineSplitter] = {}

    def start(self, unit: str, task: Task) -> None:
        """Starts a unit's process. Any earlier one has ended."""
        guarded = self._start(task)
        self._units[unit] = guarded
        self._selector.register(guarded.link, selectors.EVENT_READ, (unit, "link"))
        for stream in _SEVERITIES:
            descriptor = getattr(guarded, stream)
            os.set_blocking(descriptor, False)
            self._lines[unit, stream] = LineSplitter()
            self._selector.register(descriptor, selectors.EVENT_READ, (unit, stream))

    def stop(self, unit: str, grace: float) -> None:
        """Tells a unit's process to end; see :meth:`Guarded.stop`."""
        if unit in self._units:
            self._units[unit].stop(grace)

    def wake(self) -> None:
        with self._lock, contextlib.suppress(BlockingIOError):  # it is awake already
            if not self._closed:
                os.write(self._waker, b"\0")

    def wait(self, seconds: float | None) -> Iterator[UnitSaid | Exited]:
        """Yields events once there are any, or nothing after the given seconds, a day, or a call to wake."""
        for key, _ in self._selector.select(None if seconds is None else min(seconds, _LONGEST_WAIT)):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._awake, _CHUNK)
                continue
            unit, stream = key.data
            if unit not in self._units:
                continue  # it has ended in this same round
            if stream == "link":
                yield from self._ended(unit)
            else:
                yield from self._said(unit, stream)

    def close(self) -> None:
        """Ends all processes immediately, and releases all resources."""
        for guarded in self._units.values():
            guarded.close()
        self._units.clear()
        self._selector.close()
        with self._lock:
            self._closed = True
            os.close(self._awake)
            os.close(self._waker)

    def _said(self, unit: str, stream: str) -> Iterator[UnitSaid]:
        """Yields the lines that are now in a stream. A stream that has ended is no longer watched."""
        descriptor: int = getattr(self._units[unit], stream)
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(descriptor)
        if lines := self._lines[unit, stream].feed(data):
            yield UnitSaid(unit, tuple(lines), _SEVERITIES[stream])

    def _ended(self, unit: str) -> Iterator[UnitSaid | Exited]:
        """Yields the rest of the output of a unit that has no process left, and then its end."""
        guarded = self._units[unit]
        status = guarded.status()
        for stream in _SEVERITIES:
            descriptor: int = getattr(guarded, stream)
            while descriptor in self._selector.get_map():
                # All processes that could write have ended, so the stream has an end, unless the guard was killed.
                if not select.select([descriptor], [], [], 0)[0]:
                    self._selector.unregister(descriptor)
                    break
                yield from self._said(unit, stream)
        self._selector.unregister(guarded.link)
        del self._units[unit]
        guarded.close()
        yield Exited(unit, status)
