"""The runs of a command or a pytest session, and the workers, emulated Google Clouds and threads that they share."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from t5x_harness.runs.model_dirs import ensure_model_dirs
from t5x_harness.runs.run import Executor, Run
from t5x_harness.runtime.choice import Runtime, folder_to_import_from, runtime_of
from t5x_harness.runtime.compile_cache import compile_cache_environment, default_cache_folder
from t5x_harness.runtime.import_hooks import BOOTSTRAP_PATH
from t5x_harness.settings.project import project_folder
from t5x_harness.spec import STAGE_SECONDS, AotMode, Hosts, Imports, RunResult, RunSpec, Stage
from t5x_harness.system.network import run_environment
from t5x_harness.system.own_folders import own_folder
from t5x_harness.variables import (
    ROOT_VARIABLE,
    RUNTIME_VARIABLE,
    SOURCE_VARIABLE,
    STANDINS_VARIABLE,
    TPU_NUMERICS_VARIABLE,
    WORKER_SOCKET_VARIABLE,
)
from t5x_harness.workers.in_process import InProcess
from t5x_harness.workers.keeping import KeptPlace
from t5x_harness.workers.zygote import WARM_WORKER_UNUSED, Zygote

if TYPE_CHECKING:
    from t5x_harness.google.pool import GooglePool
    from t5x_harness.runs.local import LocalExecutor
    from t5x_harness.workers.run import OnProgress

    MakeProgress = Callable[[RunSpec], OnProgress]

_NO_STORE: Mapping[str, str | None] = {ROOT_VARIABLE: None}
"""Variables for runs in a shell of ``t5x-harness serve``, or under ``exec``, whose buckets they must not write to."""

_PRELOAD = ("t5x_harness.execute.preload",)
"""The modules that a zygote for runs imports before it forks."""

_IMPATIENT_SECONDS = 0.5

_MOST_AT_ONCE = 4
"""The most runs at once if nobody names a number: each takes up to a gigabyte."""


def runs_at_once(ahead: int | None) -> int:
    """Returns how many runs may work at the same time.

    Args:
      ahead: how many, in addition to the run whose result is waited for; None for one per core of this process, which
        keeps them busy while one of the runs waits.
    """
    return 1 + ahead if ahead is not None else min(_MOST_AT_ONCE, 1 + len(os.sched_getaffinity(0)))


@dataclasses.dataclass(frozen=True)
class RunContext:
    """The context in which a run is made.

    Attributes:
      network: whether the run may reach beyond this machine; ``gs://`` is then the real one.
      buckets: the folder of the buckets that this process already uses, and so does the run; None for the run's own.
      promote: a function that turns the executor that runs stages here into that of a job elsewhere.
      claims: whether the run's ``model_dir`` must be empty, and is kept from other runs.
    """

    network: bool = False
    buckets: str | None = None
    promote: Callable[[LocalExecutor], Executor] | None = None
    claims: bool = False


class RunPool:
    """Makes runs and lets them work, one by one or several at once; owns the resources that they share.

    One thread of a run's process does the tracing, the building of input pipelines and most compiling, and also waits
    for disks and other threads, so that runs one after the other leave cores idle. Runs that work ahead
    each have a thread of this process, which only waits for their own. These threads are daemons, so that the
    interpreter does not wait for a thread that nobody joined.

    Args:
      timeout: the seconds that one stage may take; None for no limit.
      in_process: whether runs are made in this process, for a debugger.
      parallel: how many may work ahead at the same time.
      keep: whether the workers stay for later sessions, unless the environment forbids it.

    Attributes:
      parallel: the number of runs that may work ahead at the same time.
    """

    def __init__(
        self, *, timeout: float | None, in_process: bool = False, parallel: int = 1, keep: bool = True
    ) -> None:
        self.parallel = parallel
        self._keep = keep
        self._timeout = timeout
        self._in_process = in_process
        self._workers: dict[str, Zygote | InProcess] = {}  # by the folder of their T5X
        self._warmed: set[str] = set()  # by the same folder
        self._googles: dict[tuple[str, str | None], GooglePool] = {}  # by the buckets that runs begin with
        self._begun: deque[Run] = deque()  # by finished(), which has not yielded them yet
        self._ahead: list[Run] = []
        self._waiting: SimpleQueue[Run | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    @property
    def is_used(self) -> bool:
        """Whether a run was made, or anything was warmed."""
        return bool(self._workers)

    def warm(self, spec: RunSpec, *, google: bool = True) -> None:
        """Starts the things that a run is going to need, in the background.

        Args:
          spec: the run.
          google: whether it uses an emulated Google Cloud, if it names one.
        """
        worker, runtime = self._worker(spec), runtime_of(spec)
        if runtime.location not in self._warmed:
            self._warmed.add(runtime.location)
            worker.warm()
        if google and (emulated := self._google(spec)) is not None:
            emulated.warm()

    def run(self, spec: RunSpec, workspace: Path, context: RunContext, on_progress: OnProgress | None = None) -> Run:
        """Makes a run, which works when a stage is requested.

        Args:
          spec: the spec of the run.
          workspace: a folder for this run alone.
          context: the context in which it is made.
          on_progress: a function that receives its progress.
        """
        from t5x_harness.runs.local import LocalExecutor

        store = {SOURCE_VARIABLE: context.buckets} if context.buckets else _NO_STORE
        local = LocalExecutor(
            self._worker(spec),
            timeout=self._timeout,
            env={**run_environment(allowed=context.network), **store},
            google=None if context.network or context.buckets else self._google(spec),
            claims=context.claims,
        )
        executor = local if context.promote is None else context.promote(local)
        return Run(spec, executor, workspace=workspace, on_progress=on_progress, t5x_parent=runtime_of(spec).location)

    def finished(self, runs: Iterable[Run], on_progress: MakeProgress | None = None) -> Iterator[Run]:
        """Yields runs whose stages have all been run, in order.

        If only one may work, it works in this thread, and the next one begins when it has ended. If several may work,
        at most twice that many are begun, so that the next ones work while one takes long.

        Args:
          runs: runs that :meth:`run` has made.
          on_progress: a function that makes the receiver of a run's progress when it is the run's turn.
        """
        for run in runs:
            if self.parallel < 2:
                with run:
                    self._begun.append(run)
                    yield self._next_finished(on_progress)
                continue
            if len(self._begun) == 2 * self.parallel:
                yield self._next_finished(on_progress)
            self.begin(run, run.stages)
            self._begun.append(run)
        while self._begun:
            yield self._next_finished(on_progress)

    def begin(self, run: Run, stages: Sequence[Stage]) -> None:
        """Lets a run work ahead as soon as fewer than ``parallel`` others do, in the order in which they begin.

        Args:
          run: the run.
          stages: the stages to run.
        """
        run.begin(stages)
        self._ahead.append(run)
        self._waiting.put(run)
        if len(self._threads) < self.parallel:
            self._threads.append(threading.Thread(target=self._work, name="t5x-run", daemon=True))
            self._threads[-1].start()

    def known(self) -> list[RunResult]:
        """Returns the results so far of the runs that were begun and not yielded, except runs without any."""
        return [known for run in self._begun if (known := run.known()).stages]

    @property
    def refusals(self) -> list[str]:
        """The reasons that runs did not begin in the worker that is kept for this shell, if there is one."""
        found = [getattr(worker, "refusal", "") for worker in self._workers.values()]
        return [f"{WARM_WORKER_UNUSED}: {text}" for text in found if text]

    @property
    def imports(self) -> Imports:
        """What is known of imports: of all workers, of which most sessions have one, until they are closed."""
        workers = [worker for worker in self._workers.values() if isinstance(worker, Zygote)]
        return Imports(
            sum(worker.seconds_waited for worker in workers),
            {package: seconds for worker in workers for package, seconds in worker.imports.items()},
            any(worker.is_to_stay for worker in workers),
        )

    def kill(self) -> None:
        """Kills all runs without waiting for their ends."""
        for worker in self._workers.values():
            worker.kill()

    def close(self, *, patient: bool) -> None:
        """Ends everything that was started.

        Args:
          patient: whether to wait for anything that is just starting, or only for a moment.
        """
        for run in self._ahead:
            run.close()
        for worker in self._workers.values():
            worker.close()  # which ends a thread's wait for the worker
        for google in self._googles.values():
            google.close(patient=patient)
        for _ in self._threads:
            self._waiting.put(None)
        deadline = time.monotonic() + _IMPATIENT_SECONDS
        for thread in self._threads:
            thread.join(None if patient else max(0.0, deadline - time.monotonic()))

    def _next_finished(self, on_progress: MakeProgress | None) -> Run:
        """Waits for the first run that was begun."""
        run = self._begun[0]
        if on_progress is not None:
            run.on_progress = on_progress(run.spec)
        run.finish()
        run.result()
        return self._begun.popleft()

    def _work(self) -> None:
        while (run := self._waiting.get()) is not None:
            run.work()

    def _worker(self, spec: RunSpec) -> Zygote | InProcess:
        runtime = runtime_of(spec)
        if runtime.location not in self._workers:
            self._workers[runtime.location] = (
                InProcess() if self._in_process else worker_for(runtime, keep=self._keep, timings=spec.settings.timings)
            )
        return self._workers[runtime.location]

    def _google(self, spec: RunSpec) -> GooglePool | None:
        """Returns the emulated Google Cloud of all runs that begin with the same buckets; None for runs without one."""
        from t5x_harness.google.pool import GooglePool

        if spec.settings.gcs == "off" or not GooglePool.is_installed():
            return None
        return self._googles.setdefault(
            (spec.settings.gcs, spec.settings.gcs_root), GooglePool(spec.settings.gcs_root, spec.settings.gcs)
        )


def worker_for(
    runtime: Runtime, *, socket_path: Path | None = None, keep: bool = False, timings: bool = False
) -> Zygote:
    """Returns a zygote whose runs import this T5X; it starts with the first run, or with ``warm()``.

    Args:
      runtime: the T5X.
      socket_path: a path that makes it a warm one for other sessions, which find it there. Without it, the shell's warm
        one is used, if there is any.
      keep: whether one that an earlier session of the project has left is used, or else this one is left for later
        ones, unless the shell has a warm one.
      timings: whether to measure what its imports spend their time on.
    """
    kept = os.environ.get(WORKER_SOCKET_VARIABLE) if socket_path is None else None
    others = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != BOOTSTRAP_PATH]
    if (folder := folder_to_import_from(runtime)) is not None and folder not in others:
        others.insert(0, folder)
    env = {
        "PYTHONPATH": os.pathsep.join([BOOTSTRAP_PATH, *others]),
        RUNTIME_VARIABLE: runtime.kind,
        STANDINS_VARIABLE: "",  # a run makes its own, and reports them
        TPU_NUMERICS_VARIABLE: "",  # each run has its own
        "JAX_PLATFORMS": "cpu",  # also for imports before a run has its slice's devices
        # With oneDNN, which multiplies matrices, TensorFlow searches every function of a pipeline for suitable work.
        "TF_ENABLE_ONEDNN_OPTS": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "0"),
        **compile_cache_environment(default_cache_folder(os.environ)),
    }
    if "KERAS_HOME" not in os.environ and not Path("~/.keras/keras.json").expanduser().exists():
        env["KERAS_HOME"] = os.devnull  # TensorFlow imports Keras, which would write its settings into the home folder
    place = None
    if keep and not kept:
        place = KeptPlace.find(os.environ, runtime.location, str(project_folder(Path.cwd())))
    return Zygote(
        preload=_PRELOAD,
        env=env,
        socket_path=socket_path,
        kept=Path(kept) if kept else None,
        place=place,
        timings=timings,
    )


def run_specs(
    specs: Sequence[RunSpec],
    workspace: Path,
    *,
    timeout: float | None = None,
    in_process: bool = False,
    network: bool = False,
    keep: bool = True,
    ahead: int | None = None,
    on_progress: Callable[[RunSpec], OnProgress] | None = None,
    on_note: Callable[[str], None] | None = None,
    on_imports: Callable[[Imports], None] | None = None,
    on_interrupt: Callable[[Sequence[RunResult]], None] | None = None,
) -> Generator[RunResult]:
    """Runs configs, several at once, and yields their results in order.

    The worker imports while the first config is linted. Only the worker may stay, for the next session; nothing else is
    left behind, however the caller ends.

    Args:
      specs: the specs of the runs.
      workspace: a folder for the runs' own files; each run gets a subfolder.
      timeout: the seconds that one stage may take.
      in_process: whether to run in this process, for a debugger.
      network: whether runs may reach beyond this machine; ``gs://`` is then the real one.
      keep: whether the worker stays for later sessions, unless the environment forbids it.
      ahead: how many runs may work in addition to the one whose result comes next; None for the number of cores, at
        most 3.
      on_progress: a function that makes the receiver of a run's progress events, in this thread, when its result comes
        next.
      on_note: a function that is called at the end with notes on the call as a whole.
      on_imports: a function that is called at the end with what is known of imports, unless a note has it.
      on_interrupt: a function that is called, if this is interrupted or closed early, with the results so far of runs
        that were begun and whose results did not come; by then all of them are being killed, and nothing is waited for
        yet.

    Raises:
      ModelDirError: a run cannot have its folder; it was not started, nor was any other if that was foreseeable.
      RuntimeError: a run asks for an installed T5X, and none is installed.
    """
    ensure_model_dirs(specs)
    parallel = 1 if in_process else min(runs_at_once(ahead), len(specs))
    pool = RunPool(timeout=timeout, in_process=in_process, parallel=parallel, keep=keep)

    def make() -> Iterator[Run]:
        for number, spec in enumerate(specs, start=1):
            pool.warm(spec, google=not network)
            folder = workspace / f"{number:02d}-{spec.name}"
            folder.mkdir(parents=True, exist_ok=True)
            yield pool.run(spec, folder, RunContext(network=network, claims=True))

    patient = True
    try:
        for run in pool.finished(make(), on_progress):
            yield run.result()
    except (KeyboardInterrupt, GeneratorExit):
        patient = False
        known = pool.known()
        pool.kill()
        if on_interrupt is not None:
            on_interrupt(known)
        raise
    finally:
        imports = pool.imports
        pool.close(patient=patient)
        if on_note is not None:
            for refusal in pool.refusals:
                on_note(refusal)
        if on_imports is not None and not pool.refusals:
            on_imports(imports)


def plan_specs(specs: Sequence[RunSpec], aot: AotMode | None = None, *, keep: bool = True) -> list[RunResult]:
    """Runs the stages of configs that execute nothing, as before sending jobs; only the worker may stay.

    Args:
      specs: the specs of the runs, with modes; golden plans are ignored.
      aot: how their programs are compiled for the slice; None for not at all.
      keep: whether the worker stays for later sessions, unless the environment forbids it.
    """
    planned = [
        spec.with_settings(plan_golden=None, plan_golden_update=False, until=Stage.AOT, aot=aot, hosts=Hosts.ONE)
        for spec in specs
    ]
    with own_folder("t5x-harness-plan-") as folder:
        return list(run_specs(planned, folder.path, timeout=STAGE_SECONDS, keep=keep))
