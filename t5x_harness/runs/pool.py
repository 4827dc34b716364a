"""What the runs of a command, or of a pytest session, share: workers, emulated Google Clouds and background threads."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_harness.runs.pipeline import BackendFactory, Pipeline
from t5x_harness.spec import RunSpec, Stage
from t5x_harness.variables import ROOT_VARIABLE, SOURCE_VARIABLE

if TYPE_CHECKING:
    from t5x_harness.google.pool import GooglePool
    from t5x_harness.runs.background import BackgroundRun, BackgroundRuns, OnProgress, OpenPipeline
    from t5x_harness.runtime.choice import Runtime
    from t5x_harness.workers import InProcess, Zygote

_NO_STORE: Mapping[str, str | None] = {ROOT_VARIABLE: None}
"""For runs in a shell of ``t5x-harness serve``, or under ``exec``: the buckets there are not theirs to write to."""


@dataclasses.dataclass(frozen=True)
class RunContext:
    """Where a run is made.

    Attributes:
      network: whether it may reach beyond this machine; ``gs://`` is then the real one.
      buckets: the folder of the buckets that this process uses already, and the run with it; None for its own.
      promote: makes the backend of a run that is a job elsewhere.
    """

    network: bool = False
    buckets: str | None = None
    promote: BackendFactory | None = None


class RunPool:
    """Makes runs' pipelines; owns what they share, which starts when it is first needed.

    Args:
      timeout: seconds that one stage may take; None for no limit.
      in_process: whether runs are made in this process, for a debugger.
      at_once: how many may work in the background at the same time.
    """

    def __init__(self, *, timeout: float | None, in_process: bool, at_once: int) -> None:
        self.at_once = at_once
        self._timeout = timeout
        self._in_process = in_process
        self._workers: dict[str, Zygote | InProcess] = {}  # by the folder of their T5X
        self._warmed: set[str] = set()  # likewise
        self._googles: dict[tuple[str, str | None], GooglePool] = {}  # by the buckets that runs begin with
        self._background: BackgroundRuns | None = None

    @property
    def is_used(self) -> bool:
        """Whether a pipeline was made, or something warmed."""
        return bool(self._workers)

    def warm(self, spec: RunSpec, *, google: bool = True) -> None:
        """Starts what a run is going to need in the background.

        Args:
          spec: the run.
          google: whether it uses an emulated Google Cloud, if it names one.
        """
        from t5x_harness.workers import InProcess

        worker = self._worker(spec)
        runtime = _runtime(spec)
        if runtime.location not in self._warmed and not isinstance(worker, InProcess):
            self._warmed.add(runtime.location)
            worker.warm()
        if google and (emulated := self._google(spec)) is not None:
            emulated.warm()

    def pipeline_factory(
        self, spec: RunSpec, workspace: Path, context: RunContext
    ) -> Callable[[OnProgress | None], Pipeline]:
        """Returns what makes a run's pipeline in any thread, given the receiver of its progress.

        Args:
          spec: what to run.
          workspace: a folder for this run alone.
          context: where it is made.
        """
        from t5x_harness.system.network import run_environment

        store = {SOURCE_VARIABLE: context.buckets} if context.buckets else _NO_STORE
        made = functools.partial(
            Pipeline,
            spec,
            zygote=self._worker(spec),
            workspace=workspace,
            timeout=self._timeout,
            t5x_parent=_runtime(spec).location,
            env={**run_environment(allowed=context.network), **store},
            google=None if context.network or context.buckets else self._google(spec),
            promote=context.promote,
        )
        return lambda on_progress: made(on_progress=on_progress)

    def begin(
        self,
        spec: RunSpec,
        stages: Sequence[Stage],
        make: OpenPipeline,
        on_progress: Callable[[RunSpec], OnProgress],
    ) -> BackgroundRun:
        """Lets a run work in the background; see :meth:`~t5x_harness.runs.background.BackgroundRuns.begin`."""
        from t5x_harness.runs.background import BackgroundRuns

        if self._background is None:
            self._background = BackgroundRuns(self.at_once)
        return self._background.begin(spec, stages, make, on_progress)

    @property
    def refusals(self) -> list[str]:
        """Why runs did not begin in the worker that is kept for this shell, though there is one."""
        from t5x_harness.workers import WARM_WORKER_UNUSED

        found = [getattr(worker, "refusal", "") for worker in self._workers.values()]
        return [f"{WARM_WORKER_UNUSED}: {text}" for text in found if text]

    @property
    def import_seconds(self) -> float:
        """How long was waited for imports."""
        return sum(getattr(worker, "seconds_waited", 0.0) for worker in self._workers.values())

    def kill(self) -> None:
        """Has all runs killed, without waiting for that."""
        for worker in self._workers.values():
            worker.kill()

    def close(self, *, patient: bool) -> None:
        """Ends what was started.

        Args:
          patient: whether to wait for what is just starting.
        """
        if self._background is not None:
            self._background.cancel()
        for worker in self._workers.values():
            worker.close()  # which ends a thread's wait for it
        for google in self._googles.values():
            google.close(patient=patient)
        if self._background is not None:
            self._background.join(patient=patient)

    def _worker(self, spec: RunSpec) -> Zygote | InProcess:
        runtime = _runtime(spec)
        if runtime.location not in self._workers:
            from t5x_harness.workers import InProcess

            self._workers[runtime.location] = InProcess() if self._in_process else worker_for(runtime)
        return self._workers[runtime.location]

    def _google(self, spec: RunSpec) -> GooglePool | None:
        """Returns the emulated Google Cloud of all runs that begin with the same buckets; None for runs without one."""
        from t5x_harness.google.pool import GooglePool

        if spec.settings.gcs == "off" or not GooglePool.is_installed():
            return None
        return self._googles.setdefault(
            (spec.settings.gcs, spec.settings.gcs_root), GooglePool(spec.settings.gcs_root, spec.settings.gcs)
        )


def worker_for(runtime: Runtime, *, socket_path: Path | None = None) -> Zygote:
    """Returns a zygote whose runs import this T5X; it starts with the first run, or with ``warm()``.

    Args:
      runtime: the T5X.
      socket_path: makes it a warm one for other sessions, which find it there. Without it, the shell's warm one is
        used, if there is any.
    """
    from t5x_harness.runs.local import PRELOAD
    from t5x_harness.runtime.choice import folder_to_import_from
    from t5x_harness.runtime.import_hooks import BOOTSTRAP_PATH
    from t5x_harness.variables import (
        RUNTIME_VARIABLE,
        STANDINS_VARIABLE,
        TPU_NUMERICS_VARIABLE,
        WORKER_SOCKET_VARIABLE,
    )
    from t5x_harness.workers import Zygote, compile_cache_environment, default_cache_folder

    kept = os.environ.get(WORKER_SOCKET_VARIABLE) if socket_path is None else None
    others = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != BOOTSTRAP_PATH]
    if (folder := folder_to_import_from(runtime)) is not None and folder not in others:
        others.insert(0, folder)
    return Zygote(
        preload=PRELOAD,
        env={
            "PYTHONPATH": os.pathsep.join([BOOTSTRAP_PATH, *others]),
            RUNTIME_VARIABLE: runtime.kind,
            STANDINS_VARIABLE: "",  # a run makes its own, and reports them
            TPU_NUMERICS_VARIABLE: "",  # each run has its own
            "JAX_PLATFORMS": "cpu",  # also for what is imported before a run has its slice's devices
            **_tensorflow_environment(os.environ),
            **compile_cache_environment(default_cache_folder(os.environ)),
        },
        socket_path=socket_path,
        kept=Path(kept) if kept else None,
    )


def _runtime(spec: RunSpec) -> Runtime:
    from t5x_harness.runtime.choice import runtime_of

    return runtime_of(spec)


def _tensorflow_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Returns TensorFlow's settings where the user sets none.

    Keras, which it imports, shall not write its settings into the home folder where there are none. And it need not
    look through every function of an input pipeline for what oneDNN, which multiplies matrices, could take over.
    """
    chosen = {"TF_ENABLE_ONEDNN_OPTS": env.get("TF_ENABLE_ONEDNN_OPTS", "0")}
    if "KERAS_HOME" not in env and not Path("~/.keras/keras.json").expanduser().exists():
        chosen["KERAS_HOME"] = os.devnull
    return chosen
