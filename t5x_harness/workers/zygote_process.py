"""The zygote: a fresh interpreter that imports the stack once, then forks a guard and a run on request."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_harness.system import processes
from t5x_harness.timings.kinds import package_of
from t5x_harness.timings.sampler import SAMPLING, Sampler
from t5x_harness.upstream.cpython import call_with_preallocated_frames
from t5x_harness.upstream.tensorflow import has_started
from t5x_harness.workers import framing, guard_process, run_process
from t5x_harness.workers.listener import Client, Listener

if TYPE_CHECKING:
    from t5x_harness.workers.kept_process import KeptProcess

ERROR_LINES = 6

_OWN_THREADS = (threading.main_thread().name, SAMPLING)


def main(control: int, lifeline: int, parent: int, listening: int | None = None) -> None:
    """Runs the zygote. Never returns.

    Args:
      control: the descriptor of the connection to the parent. It receives the settings first, then the byte ``s`` and
        three descriptors for each run to start. After ``r`` the zygote ends with the last of the other sessions; if the
        connection closes, it must end, unless it was left with ``k``.
      lifeline: the read end of a pipe that the parent holds open and never writes to.
      parent: the pid of the parent.
      listening: the descriptor of a socket that listens for other sessions, which use the parent's protocol, or None.
    """
    status = 1
    try:
        listener = None if listening is None else socket.socket(fileno=listening)
        zygote = _Zygote(Client(socket.socket(fileno=control), parent), listener)
        # Every fork keeps these frames on its stack.
        status = call_with_preallocated_frames(zygote.main, lifeline, parent)
    except BaseException:
        traceback.print_exc()
    finally:
        # Not through the interpreter's shutdown: tearing TensorFlow down takes seconds, and nothing here needs it.
        os._exit(status)


class _Zygote:
    def __init__(self, owner: Client, listener: socket.socket | None) -> None:
        self._owner = owner
        self._channel = framing.Channel(owner.control)
        self._listening = listener
        self._listener: Listener | None = None
        self._clients = [owner]
        self._guards: dict[int, Client] = {}
        self._awake = self._waker = -1
        self._is_retired = False
        self._lifeline = -1
        self._socket_path: Path | None = None
        self._kept: KeptProcess | None = None
        self._imports: dict[str, float] = {}

    def main(self, lifeline: int, parent: int) -> int:
        processes.reset_signals()
        processes.name_process("t5x-zygote")
        # From now on, even in the middle of an import, this process ends when the parent ends.
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
        if os.getppid() != parent:
            return 1
        processes.adopt_orphans()
        settings = self._channel.receive()
        sys.path[:0] = settings["python_path"]
        sys.argv = ["t5x-zygote"]
        gc.disable()  # no collection may touch, and so copy, the pages that the forks share
        before, since = dict(os.environ), time.time_ns()
        with _measuring(self._imports) if settings["timings"] else contextlib.nullcontext():
            for name in settings["preload"]:
                self._channel.send({"importing": name})
                if failure := _preload(name):
                    self._channel.send({"failed": name, "error": failure})
                    return 1
        imported = {k: v for k, v in os.environ.items() if before.get(k) != v}
        if self._listening is not None:
            self._listener = Listener(self._listening, settings, before, since)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) & ~os.O_ASYNC)
        gc.freeze()  # without a collection first, which takes as long as an import, and finds little
        self._lifeline = lifeline
        self._socket_path = Path(settings["socket"]) if self._listener else None
        self._await_orders(imported)
        return 0

    def _await_orders(self, imported: Mapping[str, str]) -> None:
        self._awake, self._waker = processes.watch_children()
        self._channel.send({"ready": True, "imports": self._imports})
        while self._stays():
            ready = self._wait()
            if self._awake in ready:
                self._wake()
                self._reap()
            if self._lifeline in ready:
                break
            heard = [client for client in self._clients if ready.intersection(client.descriptors)]
            if self._listener is not None:  # admitted sessions have identified themselves, and may be idle for long
                self._clients += self._listener.admit(ready)
                if self._listener.changed:
                    with contextlib.suppress(OSError):  # if the parent does not read
                        changed = framing.encode({"changed": self._listener.changed})
                        self._owner.control.send(changed, socket.MSG_DONTWAIT)
            for client in heard:
                if client.watch in ready or not self._obey(client, imported):
                    self._clients.remove(client)
                    client.close()
        self._end()
        if self._kept is not None:
            self._kept.remove()

    def _stays(self) -> bool:
        """Returns whether there are sessions, or more to come."""
        is_quiet = self._listener is None or self._listener.is_quiet
        if self._kept is not None:
            return not self._kept.is_over(used=not is_quiet or bool(self._clients))
        if self._is_retired and is_quiet and self._clients == [self._owner]:
            return False  # another zygote has taken its place, and its sessions are over
        return self._owner in self._clients

    def _wait(self) -> set[int]:
        """Waits for something to arrive, and returns the readable descriptors."""
        poll = select.poll()
        listening = () if self._listener is None else self._listener.descriptors
        patience = [] if self._listener is None or self._listener.patience is None else [self._listener.patience]
        patience += [] if self._kept is None else [self._kept.patience]
        each = (descriptor for client in self._clients for descriptor in client.descriptors)
        for descriptor in (self._lifeline, self._awake, *listening, *each):
            if descriptor >= 0:
                poll.register(descriptor, select.POLLIN)
        return {descriptor for descriptor, _ in poll.poll(1000 * min(patience) if patience else None)}

    def _end(self) -> None:
        # The parent's guards clean up by themselves now; this process ends last, so that not even zombies remain.
        # Guards of other sessions would continue.
        for guard, client in self._guards.items():
            if client is not self._owner:
                processes.kill_quietly(guard, signal.SIGKILL)
        deadline = time.monotonic() + guard_process.CLEARING_SECONDS + 1
        while self._reap() and time.monotonic() < deadline:
            select.select([self._awake], [], [], 0.1)
            self._wake()
        processes.kill_below()

    def _obey(self, client: Client, imported: Mapping[str, str]) -> bool:
        """Does what a session asks for; returns False if it has ended."""
        try:
            order, descriptors, _, _ = socket.recv_fds(client.control, 1, 3, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            return False
        if not order:
            return False
        if order == b"r":
            self._is_retired |= client is self._owner
        elif order == b"k":
            if client is self._owner and self._kept is None:
                self._stay()
        else:
            self._start(client, imported, *descriptors)
        return True

    def _stay(self) -> None:
        """Lets go of the session that began this process, before that ends."""
        from t5x_harness.workers.kept_process import KeptProcess

        assert self._listener is not None
        assert self._socket_path is not None
        os.chdir("/")  # the session's folder may be removed
        os.close(self._lifeline)
        self._lifeline = -1
        self._listener.can_stop = True
        self._kept = KeptProcess(self._listener, self._socket_path)
        self._channel.send({"kept": True})

    def _start(self, client: Client, imported: Mapping[str, str], link: int, guard: int, log: int) -> None:
        """Forks a guard, which forks the run."""
        sys.stdout.flush()
        sys.stderr.flush()
        processes.flush_c_streams()  # or every fork would write the text that is buffered here
        with warnings.catch_warnings():
            # Python cannot know that forks do not harm the native threads of preloaded libraries; this was measured.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            watch, client.watch = client.watch, None
            for descriptor in (self._lifeline, self._awake, self._waker):
                if descriptor >= 0:
                    os.close(descriptor)
            for other in self._clients:
                other.close()
            if self._listener is not None:
                self._listener.close()
            guard_process.guard(
                socket.socket(fileno=guard),
                socket.socket(fileno=link),
                log=log,
                parent=watch,
                imported=imported,
                path=client.path,
            )
        self._guards[pid] = client
        for descriptor in (link, guard, log):
            os.close(descriptor)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._awake, 4096)

    def _reap(self) -> bool:
        """Notes which guards have ended; returns False if no child is left."""
        strays = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                break
            # A guard that ended by itself left nothing; one that was killed left its run's processes to this process.
            strays |= self._guards.pop(pid, None) is None or status != 0
        if strays:
            processes.kill_below(self._guards)
        return True


@contextlib.contextmanager
def _measuring(packages: dict[str, float]) -> Iterator[None]:
    """Adds the seconds that the block spends importing each package."""
    with Sampler(package_of) as sampler:
        yield
    packages.update(sampler.rounded())


def _preload(name: str) -> str | None:
    """Imports a module and checks that forks can use it; returns the problem, if there is one."""
    try:
        importlib.import_module(name)
    except BaseException as error:
        text = run_process.user_traceback(error, __file__)
        sys.stderr.write(text)
        return "\n".join(text.splitlines()[-ERROR_LINES:])
    others = [thread.name for thread in threading.enumerate() if thread.name not in _OWN_THREADS]
    if others:
        found = f"it started the Python thread {', '.join(others)}"
    elif _has_jax_backend():
        found = "it created a JAX backend (it made an array or asked for the devices)"
    elif has_started():
        found = "it started TensorFlow's runtime (it made a tensor or a dataset)"
    else:
        return None
    return (
        f"{found}, which does not survive a fork. Import it inside the run instead of preloading it, or keep such work "
        "out of its import."
    )


def _has_jax_backend() -> bool:
    jax = sys.modules.get("jax")
    if jax is None:
        return False
    devices = jax.config.values["jax_num_cpu_devices"]
    try:
        # JAX refuses another number once a backend exists, which is the public way to ask for one.
        jax.config.update("jax_num_cpu_devices", devices + 2)
    except RuntimeError:
        return True
    jax.config.update("jax_num_cpu_devices", devices)
    return False
