"""Runs without a process, for a debugger: ``pdb`` works, output goes to the terminal, and exceptions are unchanged."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.system import network
from t5x_harness.system.closing import Closing
from t5x_harness.workers.errors import RunRaised, WorkerError
from t5x_harness.workers.run import Environment, OnProgress, RunProcess, check_arguments, start_message
from t5x_harness.workers.run_process import apply_jax_environment, check_reply, load_factory


class InProcess(Closing):
    """A zygote whose runs are all in this process; a context manager.

    A run's folder, environment and import path are in force during its factory and its calls. Some things cannot be
    undone: imported modules, ``/gcs``, and JAX's options and devices, so that one process can serve only one slice.
    Only Python's sockets are kept off the network. Time limits are not enforced, because debugging takes time.
    """

    def warm(self) -> None:
        """Does nothing, because there is no process to prepare."""

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
        """Prepares a run, whose first call also calls its factory. See :meth:`Zygote.start`; no log is written."""
        message = start_message(factory, argument, cwd=cwd, env={}, python_path=python_path)
        return InProcessRun(message, env=dict(env or {}), log=Path(log).absolute())

    def kill(self) -> None:
        """Does nothing, because there is no process."""

    def close(self) -> None:
        """Does nothing, because a run here leaves no process."""


class InProcessRun(RunProcess):
    """A run whose methods are called in this process; arguments and results still pass through JSON."""

    def __init__(self, start: Mapping[str, Any], *, env: Environment, log: Path) -> None:
        self.pid = os.getpid()
        self.log = log
        self._start = start
        self._env = env
        self._made: list[Any] = []
        self._closed = False
        self._on_progress: OnProgress | None = None

    def call(
        self, method: str, /, *, timeout: float | None = None, on_progress: OnProgress | None = None, **kwargs: Any
    ) -> Any:
        """Calls a method of the run's object, which the first call makes."""
        if self._closed:
            raise RuntimeError(f"{method}() cannot be called: the run was closed")
        check_arguments(method, kwargs)
        self._on_progress = on_progress
        with self._entered():
            if not self._made:
                factory = load_factory(self._start["factory"])
                self._made.append(factory(json.loads(json.dumps(self._start["argument"])), self._progress))
            value = getattr(self._made[0], method)(**json.loads(json.dumps(kwargs)))
        reply = check_reply(value, method)
        if "raised" in reply:
            raise RunRaised(reply)
        return json.loads(json.dumps(value))

    def close(self) -> None:
        """Drops the run's object; no method can be called afterwards."""
        self._made.clear()
        self._closed = True

    def _progress(self, event: Mapping[str, Any]) -> None:
        if self._on_progress:
            self._on_progress(json.loads(json.dumps(event)))

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        folder, path, before = os.getcwd(), list(sys.path), dict(os.environ)
        try:
            os.chdir(self._start["cwd"])
            sys.path[:0] = self._start["python_path"]
            _put(self._env)
            if not self._made:
                apply_jax_environment(before, os.environ)
                _see_gcs()
            with network.forbidden() if network.network_is_forbidden(os.environ) else contextlib.nullcontext():
                yield
        finally:
            # Only the variables that were set above: those that imported modules set must remain.
            _put({name: before.get(name) for name in self._env})
            sys.path[:] = path
            os.chdir(folder)


def _see_gcs() -> None:
    """Patches this process, which has threads and outlives the run, to find the emulated buckets at ``/gcs``.

    Raises:
      WorkerError: ``/gcs`` is to behave like Cloud Storage FUSE, which requires a mount.
    """
    from t5x_harness.google.gcs_mount.mount import MountMode
    from t5x_harness.google.gcs_mount.patching import patch
    from t5x_harness.variables import MODE_VARIABLE, ROOT_VARIABLE

    root = os.environ.get(ROOT_VARIABLE)
    if root and os.environ.get(MODE_VARIABLE) == MountMode.FUSE:
        raise WorkerError(
            "/gcs cannot be as Cloud Storage FUSE in a run without a process of its own",
            fix="choose --gcs=folder, or leave out --in-process (pytest: --t5x-in-process)",
        )
    if root:
        patch(root)


def _put(variables: Environment) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
