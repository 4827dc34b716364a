"""The zygote: a fresh interpreter that imports the stack once, and then forks a guard and a run on request."""

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
from collections.abc import Callable, Mapping
from typing import Any

from t5x_harness.workers import framing, guard_process, processes, run_process

__all__ = ["main"]

ERROR_LINES = 6


def main(control: int, lifeline: int, parent: int) -> None:
    """Runs the zygote. Never returns.

    Args:
      control: descriptor of the connection to the parent. It brings the settings first, then one byte and three
        descriptors for each run to start; its end means that the zygote must end.
      lifeline: read end of a pipe that the parent holds open and never writes to.
      parent: pid of the parent.
    """
    status = 1
    try:
        status = _Zygote(socket.socket(fileno=control), parent).main(lifeline)
    except BaseException:
        traceback.print_exc()
    finally:
        # Not through the interpreter's end: tearing TensorFlow down takes seconds, and nothing here needs it.
        os._exit(status)


class _Zygote:
    def __init__(self, control: socket.socket, parent: int) -> None:
        self._control = control
        self._parent = parent
        self._watch: int | None = None
        self._guards: set[int] = set()
        self._awake = self._waker = -1

    def main(self, lifeline: int) -> int:
        processes.reset_signals()
        processes.name_process("t5x-zygote")
        # From now on, and in the midst of any import, the parent's end is this process' end.
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
        with contextlib.suppress(OSError):  # an old kernel: then the closed connection alone tells
            self._watch = os.pidfd_open(self._parent)
        if os.getppid() != self._parent:
            return 1
        processes.adopt_orphans()
        settings = framing.Channel(self._control).receive()
        sys.path[:0] = settings["python_path"]
        sys.argv = ["t5x-zygote"]
        gc.disable()  # no collection may touch, and so copy, the pages that the forks share
        before = dict(os.environ)
        for name in settings["preload"]:
            self._send({"importing": name})
            if failure := _preload(name):
                self._send({"failed": name, "error": failure})
                return 1
        imported = {k: v for k, v in os.environ.items() if before.get(k) != v}
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) & ~os.O_ASYNC)
        gc.collect()
        gc.freeze()
        self._await_orders(lifeline, imported)
        return 0

    def _send(self, message: Mapping[str, Any]) -> None:
        self._control.sendall(framing.encode(message))

    def _await_orders(self, lifeline: int, imported: Mapping[str, str]) -> None:
        self._awake, self._waker = os.pipe()
        os.set_blocking(self._awake, False)
        os.set_blocking(self._waker, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        poll = select.poll()
        for descriptor in (self._control.fileno(), lifeline, self._awake, *_some(self._watch)):
            poll.register(descriptor, select.POLLIN)
        self._send({"ready": True})
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._awake in ready:
                self._wake()
                self._reap()
            if lifeline in ready or self._watch in ready:
                break
            if self._control.fileno() in ready and not self._start(lifeline, imported):
                break
        # The guards clear up by themselves now; this process goes last, so that even zombies are gone with it.
        deadline = time.monotonic() + guard_process.CLEARING_SECONDS + 1
        while self._reap() and time.monotonic() < deadline:
            select.select([self._awake], [], [], 0.1)
            self._wake()
        self._guards.clear()
        self._kill_strays()

    def _start(self, lifeline: int, imported: Mapping[str, str]) -> bool:
        """Forks a guard, which forks the run; False when the parent wants no more."""
        order, descriptors, _, _ = socket.recv_fds(self._control, 1, 3, socket.MSG_CMSG_CLOEXEC)
        if not order:
            return False
        link, guard, log = descriptors
        sys.stdout.flush()
        sys.stderr.flush()
        processes.flush_c_streams()  # or every fork would write what is buffered here
        with warnings.catch_warnings():
            # Python cannot know that the native threads of the preloaded libraries do not mind; this was measured.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for descriptor in (lifeline, self._awake, self._waker):
                os.close(descriptor)
            self._control.close()
            guard_process.guard(
                socket.socket(fileno=guard),
                socket.socket(fileno=link),
                log=log,
                parent=self._watch,
                imported=imported,
            )
        self._guards.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._awake, 4096)

    def _reap(self) -> bool:
        """Takes note of the guards that ended; False when no child is left."""
        strays = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                break
            # A guard that ended by itself left nothing; one that was killed left its run's processes to this one.
            strays |= pid not in self._guards or status != 0
            self._guards.discard(pid)
        if strays:
            self._kill_strays()
        return True

    def _kill_strays(self) -> None:
        below = processes.descendants(os.getpid())
        guarded = {pid for guard in self._guards for pid in (guard, *processes.descendants(guard))}
        for pid in below:
            if pid not in guarded:
                processes.kill_quietly(pid, signal.SIGKILL)


def _some(descriptor: int | None) -> tuple[int, ...]:
    return () if descriptor is None else (descriptor,)


def _preload(name: str) -> str | None:
    """Imports a module and checks that forks will be able to use it; returns what is wrong."""
    try:
        importlib.import_module(name)
    except BaseException as error:
        text = run_process.user_traceback(error, __file__)
        sys.stderr.write(text)
        return "\n".join(text.splitlines()[-ERROR_LINES:])
    checks: tuple[Callable[[], str | None], ...] = (_running_threads, _jax_backend, _tensorflow_runtime)
    for check in checks:
        if found := check():
            return (
                f"{found}, which does not survive a fork. Import it inside the run instead of preloading it, or keep "
                "such work out of its import."
            )
    return None


def _running_threads() -> str | None:
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    return f"it started the Python thread {', '.join(others)}" if others else None


def _jax_backend() -> str | None:
    jax = sys.modules.get("jax")
    if jax is None:
        return None
    devices = jax.config.values["jax_num_cpu_devices"]
    try:
        # JAX refuses another number once a backend exists, which is the public way to ask for one.
        jax.config.update("jax_num_cpu_devices", devices + 2)
    except RuntimeError:
        return "it created a JAX backend (it made an array or asked for the devices)"
    jax.config.update("jax_num_cpu_devices", devices)
    return None


def _tensorflow_runtime() -> str | None:
    context = sys.modules.get("tensorflow.python.eager.context")
    current = context.context_safe() if context else None
    # A context that was only configured has no threads yet.
    started = current is not None and getattr(current, "_initialized", True)
    return "it started TensorFlow's runtime (it made a tensor or a dataset)" if started else None
