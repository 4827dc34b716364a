"""The parent's side of the zygote: start it, hand it sockets, end it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import t5x_harness
from t5x_harness.workers import framing
from t5x_harness.workers.connection import Connection
from t5x_harness.workers.diagnosis import describe_status, read_tail
from t5x_harness.workers.errors import ZygoteFailed
from t5x_harness.workers.run import ForkedRun, Run

__all__ = ["Environment", "Zygote", "environment", "start_message"]

# Variables to add to the environment; None takes one out of it.
Environment = Mapping[str, str | None]

# How long a fork may take, on a machine that swaps.
FORK_SECONDS = 60.0
# A little more than the zygote waits for its guards.
END_SECONDS = 12.0

# The zygote must run the same code as its parent, which may use a source tree that only it has on its path.
BOOT = """\
import importlib.util, os, sys
found = importlib.util.find_spec("t5x_harness")
if not (found and found.origin and os.path.samefile(found.origin, {origin!r})):
    sys.path.insert(0, os.path.dirname(os.path.dirname({origin!r})))
from t5x_harness.workers.zygote_process import main
main({control}, {lifeline}, {parent})
"""


class Zygote:
    """A process that imports the stack once, without touching a device, and forks runs from there; a context manager.

    It is started by the first :meth:`start`, or earlier by :meth:`warm`. Should it die between two runs, the next
    :meth:`start` starts another one.
    """

    def __init__(
        self,
        *,
        preload: Sequence[str] = (),
        env: Environment | None = None,
        python_path: Sequence[str] = (),
        start_timeout: float = 300.0,
    ) -> None:
        """Takes the settings; starts nothing.

        Args:
          preload: modules to import, in order. They must not start threads, a JAX backend or TensorFlow's runtime.
          env: variables that every run gets, in addition to the environment of this process; None takes one out.
          python_path: folders to put in front of ``sys.path``, relative to the current folder.
          start_timeout: how many seconds the imports may take.
        """
        self._preload = tuple(preload)
        self._env = dict(env or {})
        self._python_path = tuple(os.path.abspath(folder) for folder in python_path)
        self._start_timeout = start_timeout
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._runs: weakref.WeakSet[Run] = weakref.WeakSet()
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: tuple[str, str | None, str] | None = None
        self._closed = False
        self._ready = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The zygote's pid; None when it was not started."""
        return self._process.pid if self._process else None

    def warm(self) -> None:
        """Starts the imports in the background and returns at once."""
        with self._lock:
            self._warm()

    def start(
        self,
        factory: str,
        argument: Mapping[str, Any],
        *,
        log: Path,
        cwd: Path | str = ".",
        env: Environment | None = None,
        python_path: Sequence[str] = (),
    ) -> Run:
        """Forks a run, which at once begins to call ``factory(argument, progress)``.

        Does not wait for the factory: the first call does, within its limit.

        Args:
          factory: ``package.module:callable``.
          argument: JSON values for the factory.
          log: file that the run's output is appended to; its folder is made.
          cwd: folder that the run starts in.
          env: variables to set in the run, in addition to the environment that this process has now and to the
            zygote's ``env``; None takes one out. Options that a preloaded module read from the environment while it
            was imported are as they were then, except JAX's, which are set anew.
          python_path: folders to put in front of the run's ``sys.path``, relative to the current folder.

        Raises:
          ZygoteFailed: the zygote could not be made ready.
          OSError: the log cannot be written.
          TypeError: the argument is no JSON value.
          ValueError: the factory is not written as ``package.module:callable``.
        """
        message = start_message(factory, argument, cwd=cwd, env={**self._env, **(env or {})}, python_path=python_path)
        log = Path(log).absolute()
        log.parent.mkdir(parents=True, exist_ok=True)
        with self._lock, contextlib.ExitStack() as undo:
            self._await_ready()
            log_file = undo.enter_context(log.open("ab"))
            log_start = os.fstat(log_file.fileno()).st_size
            pairs = [socket.socketpair() for _ in ("child", "guard")]
            theirs = [undo.enter_context(pair[1]) for pair in pairs]
            connection = Connection(pairs[0][0], pairs[1][0])
            on_failure = undo.enter_context(contextlib.ExitStack())
            on_failure.callback(connection.close)
            descriptors = [end.fileno() for end in theirs] + [log_file.fileno()]
            with contextlib.suppress(ConnectionError):  # the zygote is gone, which the closed sockets tell below
                socket.send_fds(self._control, [b"s"], descriptors)
            for end in theirs:
                end.close()
            pid = self._await_fork(connection)
            connection.send(message)
            on_failure.pop_all()
            run = ForkedRun(connection, pid=pid, log=log, log_start=log_start, factory=factory)
            self._runs.add(run)
        return run

    def close(self) -> None:
        """Ends all open runs and the zygote, also while another thread starts a run. May be called again."""
        if os.getpid() != self._owner:
            return  # in a fork of the parent: nothing here is ours to end
        self._closed = True
        if not self._lock.acquire(blocking=False):
            self._kill()  # another thread waits for its imports, or for a fork, and now learns that there will be none
            self._lock.acquire()
        try:
            for run in list(self._runs):
                run.close()
            self._stop()
        finally:
            self._lock.release()

    def _warm(self) -> None:
        if self._closed or os.getpid() != self._owner:
            raise RuntimeError("this zygote was closed" if self._closed else "a zygote cannot be used in a fork")
        if self._process and self._ready and self._process.poll() is not None:
            self._stop()
        if self._process or self._failure:
            return
        self._control, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        boot = BOOT.format(
            origin=str(Path(t5x_harness.__file__).resolve()),
            control=theirs.fileno(),
            lifeline=lifeline,
            parent=os.getpid(),
        )
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", boot],  # -P: the current folder is no place to import from
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env=environment(self._env),
                pass_fds=(theirs.fileno(), lifeline),
                start_new_session=True,  # Ctrl-C is for the parent, which then ends this one
            )
        finally:
            theirs.close()
            os.close(lifeline)
        self._reader = framing.FrameReader()
        self._importing: str | None = None
        self._deadline = time.monotonic() + self._start_timeout
        self._control.sendall(framing.encode({"preload": self._preload, "python_path": self._python_path}))

    def _await_ready(self) -> None:
        self._warm()
        while not self._ready and not self._failure:
            self._control.settimeout(max(0.001, self._deadline - time.monotonic()))
            try:
                data = self._control.recv(1 << 16)
            except TimeoutError:
                where = f"importing {self._importing}" if self._importing else "starting Python"
                self._fail(f"The worker process was still {where} after {self._start_timeout:g} s")
                break
            except ConnectionError:
                data = b""
            if not data:
                self._fail_as_ended()
            for message in self._reader.feed(data):
                self._importing = message.get("importing", self._importing)
                self._ready = self._ready or "ready" in message
                if "failed" in message:
                    self._fail(f"Importing {message['failed']} in the worker process failed:\n{message['error']}")
        if self._failure:
            message, module, tail = self._failure
            raise ZygoteFailed(message, module=module, log_tail=tail)
        self._control.settimeout(None)

    def _await_fork(self, connection: Connection) -> int:
        deadline = time.monotonic() + FORK_SECONDS
        while time.monotonic() < deadline:
            for event in connection.poll(deadline):
                if event.source == "guard" and event.message is None:
                    self._stop()
                    raise ZygoteFailed("The worker process died while it started a run; the next run gets a new one")
                if event.source == "guard" and "pid" in event.message:
                    return int(event.message["pid"])
        raise ZygoteFailed(f"The worker process did not fork within {FORK_SECONDS:g} s", log_tail=self._tail())

    def _fail_as_ended(self) -> None:
        assert self._process
        try:
            code = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            code = 0
        how = describe_status(-code if code < 0 else code << 8)
        where = f"while it imported {self._importing}" if self._importing else "before it could import anything"
        self._fail(f"The worker process {how} {where}")

    def _fail(self, message: str) -> None:
        self._failure = (message, self._importing, self._tail())
        self._stop()

    def _tail(self) -> str:
        return read_tail(Path(f"/proc/self/fd/{self._output.fileno()}"))

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        os.close(self._lifeline)
        try:
            # One that is ready ends by itself; one that still imports may be stuck in it, with processes of its own.
            process.wait(END_SECONDS if self._ready else 0)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.wait()
        self._output.close()
        self._ready = False

    def _kill(self) -> None:
        if self._process is not None:
            _kill(self._process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def environment(env: Environment) -> dict[str, str]:
    """The environment of this process with ``env`` put over it."""
    # One by one: pytest takes a variable of its own out after each test, and another thread may start a run just then.
    merged = {**{name: os.environ.get(name) for name in list(os.environ)}, **env}
    return {name: value for name, value in merged.items() if value is not None}


def start_message(
    factory: str, argument: Mapping[str, Any], *, cwd: Path | str, env: Environment, python_path: Sequence[str]
) -> dict[str, Any]:
    """Checks and collects what a run needs to know to begin.

    Raises:
      TypeError: the argument is no JSON value.
      ValueError: the factory is not written as ``package.module:callable``.
    """
    module, colon, attribute = factory.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"a factory is written as package.module:callable, not {factory!r}")
    if found := framing.not_json(dict(argument), "argument"):
        raise TypeError(f"{factory} cannot be called with {found}: only JSON values can be sent to a run")
    return {
        "factory": factory,
        "argument": dict(argument),
        "cwd": os.path.abspath(cwd),
        "env": environment(env),
        "python_path": [os.path.abspath(folder) for folder in python_path],
    }
