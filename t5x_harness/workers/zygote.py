"""The parent's side of a zygote: starts it, hands it sockets, replaces it when imports have changed, and ends it."""

import contextlib
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.system.closing import Closing
from t5x_harness.system.diagnosis import low_limit, signal_name
from t5x_harness.workers import framing
from t5x_harness.workers.errors import ZygoteFailed
from t5x_harness.workers.hosts import OwnHost, WarmHost
from t5x_harness.workers.keeping import KeptPlace
from t5x_harness.workers.listener import facts
from t5x_harness.workers.run import Environment, ForkedRun, RunProcess, environment, start_message

WARM_WORKER_UNUSED = "runs were not forked from the worker of t5x-harness warm, and waited for imports"
"""The message to the user, which :attr:`Zygote.refusal` completes."""

_KILLED = tuple(f"was killed by {signal_name(number)}" for number in (signal.SIGKILL, signal.SIGTERM))
"""The descriptions of a process that somebody, or the kernel for lack of memory, has killed."""

# How long a fork may take on a machine that swaps.
FORK_SECONDS = 60.0
# How long a zygote may take to agree that it stays.
_LEAVE_SECONDS = 5.0
# A kept worker answers at once if it is ready; otherwise it is still importing, as a new one would be.
_ANSWER_SECONDS = 2.0


class Zygote(Closing):
    """A process that imports the stack once, without touching a device, and forks runs from there; a context manager.

    The first :meth:`start` or an earlier :meth:`warm` starts it. If it dies between two runs, the next :meth:`start`
    starts another one.

    Attributes:
      refusal: the reason that the zygote at ``kept`` is not used; empty if it is used or if there is none.
      seconds_waited: the seconds that runs have waited for imports.
      imports: the seconds of its own imports by package, once it is ready; empty unless they are measured.
    """

    def __init__(
        self,
        *,
        preload: Sequence[str] = (),
        env: Environment | None = None,
        python_path: Sequence[str] = (),
        start_timeout: float = 300.0,
        socket_path: Path | None = None,
        kept: Path | None = None,
        place: KeptPlace | None = None,
        timings: bool = False,
    ) -> None:
        """Keeps the settings; starts nothing.

        Args:
          preload: the modules to import, in order. They must not start threads, a JAX backend or TensorFlow's runtime.
          env: variables that are set in every run, in addition to this process's environment; None removes one.
          python_path: folders to put in front of ``sys.path``, relative to the current folder.
          start_timeout: the seconds that the imports may take.
          socket_path: the path of a new socket where other sessions find this zygote; None to serve no other sessions.
          kept: the path of such a socket. Its zygote is used if its imports are what this one would import.
          place: the place where an earlier session may have left such a zygote, and where :meth:`close` leaves this
            one; None for no such place.
          timings: whether to measure what the imports spend their time on.
        """
        self._preload = tuple(preload)
        self._env = dict(env or {})
        self._python_path = tuple(os.path.abspath(folder) for folder in python_path)
        self._start_timeout = start_timeout
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._runs: weakref.WeakSet[ForkedRun] = weakref.WeakSet()
        self._socket_path = socket_path
        self._kept = kept or (place.socket_path if place is not None and place.socket_path.exists() else None)
        self._is_asked_for = kept is not None
        self._place = place
        self._timings = timings
        self.imports: Mapping[str, float] = {}
        self.refusal = ""
        self._host: OwnHost | WarmHost | None = None
        self._failure: tuple[str, str | None, str] | None = None
        self._was_killed = False
        self._closed = False
        self._ready = False
        self.seconds_waited = 0.0

    @property
    def pid(self) -> int | None:
        """The zygote's pid; None if it has not been started."""
        return self._host.pid if self._host else None

    def warm(self) -> None:
        """Starts the imports in the background and returns at once."""
        with self._lock:
            self._warm()

    def await_ready(self) -> None:
        """Waits until runs can be forked immediately.

        Raises:
          ZygoteFailed: the zygote could not start.
        """
        with self._lock:
            self._await_ready()

    @property
    def is_to_stay(self) -> bool:
        """Whether :meth:`close` will leave the zygote for the next session."""
        return self._place is not None and self._ready and isinstance(self._host, OwnHost)

    @property
    def has_ended(self) -> bool:
        """Whether a zygote that was ready is gone."""
        return self._host is None or self._host.has_ended

    def take_changed_file(self) -> str:
        """Returns an imported file that a session has found changed since the last call; empty if none was."""
        with self._lock:
            if self._host is None or not self._ready:
                return ""
            try:
                messages = self._reader.feed(self._host.control.recv(1 << 16, socket.MSG_DONTWAIT))
            except OSError:  # nothing has come, or it has ended
                return ""
            return next((str(message["changed"]) for message in messages if "changed" in message), "")

    def retire(self) -> None:
        """Makes the zygote, which must be ready, end with the last of the other sessions that it now serves."""
        with self._lock, contextlib.suppress(ConnectionError):
            assert self._host
            self._host.control.sendall(b"r")

    def start(
        self,
        factory: str,
        argument: Mapping[str, Any],
        *,
        log: Path,
        cwd: Path | str = ".",
        env: Environment | None = None,
        python_path: Sequence[str] = (),
    ) -> RunProcess:
        """Forks a run, which immediately calls ``factory(argument, progress)``.

        This does not wait for the factory; the first call does, within its limit.

        Args:
          factory: ``package.module:callable``.
          argument: the JSON values for the factory.
          log: the file that the run's output is appended to; its folder is made if missing.
          cwd: the folder that the run starts in.
          env: variables to set in the run, in addition to the environment that this process has now and to the
            zygote's ``env``; None removes one. Options that a preloaded module read from the environment at its
            import do not change, except JAX's, which are set again.
          python_path: folders to put in front of the run's ``sys.path``, relative to the current folder.

        Raises:
          ZygoteFailed: the zygote could not start.
          OSError: the log cannot be written.
          TypeError: the argument is not a JSON value.
          ValueError: the factory does not have the form ``package.module:callable``.
        """
        message = start_message(factory, argument, cwd=cwd, env={**self._env, **(env or {})}, python_path=python_path)
        log = Path(log).absolute()
        log.parent.mkdir(parents=True, exist_ok=True)
        with self._lock, contextlib.ExitStack() as undo:
            self._await_ready()
            assert self._host
            log_file = undo.enter_context(log.open("ab"))
            log_start = os.fstat(log_file.fileno()).st_size
            pairs = [socket.socketpair() for _ in ("child", "guard")]
            theirs = [undo.enter_context(pair[1]) for pair in pairs]
            connection = framing.Connection(pairs[0][0], pairs[1][0])
            on_failure = undo.enter_context(contextlib.ExitStack())
            on_failure.callback(connection.close)
            descriptors = [end.fileno() for end in theirs] + [log_file.fileno()]
            with contextlib.suppress(ConnectionError):  # the zygote is gone, which the closed sockets show below
                socket.send_fds(self._host.control, [b"s"], descriptors)
            for end in theirs:
                end.close()
            pid = self._await_fork(connection)
            folder: str | None = None
            with contextlib.suppress(OSError):  # if there is no room for it, the run keeps the usual one
                folder = tempfile.mkdtemp(prefix="t5x-run-", dir=message["env"].get("TMPDIR"))
            if folder is not None:
                on_failure.callback(shutil.rmtree, folder, ignore_errors=True)
                message["env"]["TMPDIR"] = folder
                connection.send({"remove": folder}, to="guard")
            connection.send(message)
            on_failure.pop_all()
            run = ForkedRun(connection, pid=pid, log=log, log_start=log_start, folder=folder)
            self._runs.add(run)
        return run

    def kill(self) -> None:
        """Kills all open runs at once, without waiting for their ends, and starts no further run."""
        if os.getpid() != self._owner:
            return
        self._closed = True
        for run in list(self._runs):
            run.kill()
        if self._lock.acquire(blocking=False):
            self._lock.release()
        elif (host := self._host) is not None:
            host.kill()  # another thread waits for imports or a fork, and now learns that they will not come

    def close(self) -> None:
        """Ends all open runs and the zygote, even while another thread starts a run. May be called again.

        A zygote with a place stays there for the next session.
        """
        if os.getpid() != self._owner:
            return  # in a fork of the parent, which must not end anything
        self._closed = True
        if not self._lock.acquire(blocking=False):
            if (host := self._host) is not None:
                host.kill()  # as in kill()
            self._lock.acquire()
        try:
            for run in list(self._runs):
                run.close()
            if not self._left():
                self._stop()
        finally:
            self._lock.release()

    def _warm(self) -> None:
        if self._closed or os.getpid() != self._owner:
            raise RuntimeError("this zygote was closed" if self._closed else "a zygote cannot be used in a fork")
        if self._host and self._ready and self._host.has_ended:
            self._stop()
        if self._host or self._failure:
            return
        if self._kept is not None:
            try:
                self._begin(WarmHost(self._kept))
            except OSError as error:
                self._refuse(f"it cannot be reached at {self._kept}: {error.strerror or error}")
            else:
                self._listen(_ANSWER_SECONDS)
        if self._host is None:  # no zygote is kept, or it cannot be used
            self._begin(OwnHost(environment(self._env), self._new_socket_path()))

    def _new_socket_path(self) -> Path | None:
        if self._place is not None:
            try:
                self._socket_path = self._place.new_path()
            except OSError:  # there is no such place after all
                self._place = None
        return self._socket_path

    def _left(self) -> bool:
        """Leaves the zygote at its place, if it is ready and agrees; returns whether it stays."""
        host, place, path = self._host, self._place, self._socket_path
        if not self.is_to_stay or place is None or path is None or not isinstance(host, OwnHost):
            return False
        try:
            with place.replacing(path):
                self._make_it_stay(host)
        except OSError:
            return False
        host.leave()
        self._host, self._ready = None, False
        return True

    def _make_it_stay(self, host: OwnHost) -> None:
        host.control.settimeout(_LEAVE_SECONDS)
        host.control.sendall(b"k")
        messages: list[Any] = []
        while not any("kept" in message for message in messages):
            if not (data := host.control.recv(1 << 16)):
                raise ConnectionResetError
            messages = self._reader.feed(data)

    def _begin(self, host: OwnHost | WarmHost) -> None:
        self._host = host
        self._reader = framing.FrameReader()
        self._importing: str | None = None
        self._deadline = time.monotonic() + self._start_timeout
        settings = {
            "preload": self._preload,
            "python_path": self._python_path,
            "facts": facts(environment(self._env)),
            "socket": str(self._socket_path or ""),
            "timings": self._timings,
        }
        with contextlib.suppress(ConnectionError):  # it is gone, which is noticed when its answer is awaited
            host.control.sendall(framing.encode(settings))

    def _await_ready(self) -> None:
        started = time.monotonic()
        try:
            self._warm()
            while not self._ready and not self._failure:
                if not self._listen(max(0.001, self._deadline - time.monotonic())):
                    where = f"importing {self._importing}" if self._importing else "starting Python"
                    self._fail(f"The worker process was still {where} after {self._start_timeout:g} s")
                elif self._host is None and not self._failure:
                    self._warm()  # the kept zygote refused: start another
        finally:
            self.seconds_waited += time.monotonic() - started
        if self._failure:
            message, module, tail = self._failure
            if self._was_killed:  # from outside, so the next one may survive
                self._failure, self._was_killed = None, False
            raise ZygoteFailed(message, module=module, log_tail=tail)

    def _listen(self, seconds: float) -> bool:
        """Processes the zygote's next message; returns False if none comes within the time."""
        host = self._host
        assert host
        host.control.settimeout(seconds)
        try:
            data = host.control.recv(1 << 16)
        except TimeoutError:
            return False
        except ConnectionError:
            data = b""
        if not data:
            self._take_end(host)
            return True
        for message in self._reader.feed(data):
            self._importing = message.get("importing", self._importing)
            self._ready = self._ready or "ready" in message
            self.imports = message.get("imports", self.imports)
            host.pid = message.get("pid", host.pid)
            if "failed" in message:
                self._fail(f"Importing {message['failed']} in the worker process failed:\n{message['error']}")
            if "refused" in message:
                self._refuse(message["refused"])
        if self._ready:
            host.control.settimeout(None)
        return True

    def _take_end(self, host: OwnHost | WarmHost) -> None:
        """Handles a zygote that ended before it was ready."""
        how = host.how_it_ended()
        if isinstance(host, WarmHost):
            self._refuse(f"it {how}")
            return
        where = f"while it imported {self._importing}" if self._importing else "before it could import anything"
        self._was_killed = how.startswith(_KILLED) and not self._closed
        self._fail(f"The worker process {how} {where}" + ("; the next run gets a new one" if self._was_killed else ""))

    def _refuse(self, reason: str) -> None:
        """Gives up a kept zygote that cannot be used."""
        self.refusal, self._kept = reason if self._is_asked_for else "", None
        self._stop()
        if self._closed:
            self._failure = ("The worker process was ended while a run waited for it", None, "")

    def _await_fork(self, connection: framing.Connection) -> int:
        deadline = time.monotonic() + FORK_SECONDS
        while time.monotonic() < deadline:
            for event in connection.poll(deadline):
                if event.source == "guard" and event.message is None:
                    tail = self._tail()
                    self._stop()
                    raise ZygoteFailed(
                        "The worker process died while it started a run; the next run gets a new one" + low_limit(tail),
                        log_tail=tail,
                    )
                if event.source == "guard" and "pid" in event.message:
                    return int(event.message["pid"])
        raise ZygoteFailed(f"The worker process did not fork within {FORK_SECONDS:g} s", log_tail=self._tail())

    def _fail(self, message: str) -> None:
        self._failure = (message, self._importing, self._tail())
        self._stop()

    def _tail(self) -> str:
        return self._host.log_tail() if self._host else ""

    def _stop(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            host.stop(patient=self._ready)
        self._ready = False
