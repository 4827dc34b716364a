"""Runs of several configs, as a command makes them: with one worker and one private Google for all that share it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_harness.runs.model_dirs import claim_model_dir, ensure_model_dirs
from t5x_harness.runs.pipeline import NO_STORE, OnProgress, Pipeline, google_for, worker_for
from t5x_harness.spec import RunResult, RunSpec

if TYPE_CHECKING:
    from t5x_harness.google.pool import GooglePool
    from t5x_harness.runs.background import BackgroundRun, BackgroundRuns, OpenPipeline
    from t5x_harness.workers import InProcess, Zygote

__all__ = ["RunOptions", "run_specs"]


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """How runs are made.

    Attributes:
      workspace: a folder for the runs' own files; each run gets a folder in it.
      timeout: seconds that one stage may take.
      in_process: run in this process, for a debugger.
      network: let runs reach beyond this machine; ``gs://`` is then the real one.
      ahead: how many runs may work beside the one whose result comes next; None for as many as there are cores, at
        most 3.
    """

    workspace: Path
    timeout: float | None = None
    in_process: bool = False
    network: bool = False
    ahead: int | None = None


def run_specs(
    specs: Sequence[RunSpec],
    options: RunOptions,
    *,
    on_progress: Callable[[RunSpec], OnProgress] | None = None,
    on_note: Callable[[str], None] | None = None,
    on_imports: Callable[[float], None] | None = None,
    on_interrupt: Callable[[Sequence[RunResult]], None] | None = None,
) -> Generator[RunResult]:
    """Runs configs, as many at once as the options say, and yields their results in order.

    The worker imports while the first config is linted; no process is left behind, however the caller ends.

    Args:
      specs: what to run.
      options: how.
      on_progress: makes the receiver of a run's progress events.
      on_note: called at the end with what is to be said of the call as a whole.
      on_imports: called at the end with the seconds that were waited for imports, unless a note says so.
      on_interrupt: called, if this is interrupted or closed early, with what is known of the runs that were begun and
        whose results did not come; by then all of them are being killed, and nothing is waited for yet.

    Raises:
      ModelDirError: a run cannot have its folder; it was not started, and if that could be seen before, none was.
      RuntimeError: a run asks for an installed T5X and there is none.
    """
    ensure_model_dirs(specs)
    from t5x_harness.runs.background import runs_at_once
    from t5x_harness.workers import NOT_KEPT

    shared = _Shared(options)
    at_once = 1 if options.in_process else min(runs_at_once(options.ahead), len(specs))
    receiver = on_progress or (lambda spec: lambda event: None)
    patient = True
    try:
        yield from (shared.one_by_one(specs, receiver) if at_once < 2 else shared.at_once(specs, at_once, receiver))
    except (KeyboardInterrupt, GeneratorExit):
        patient = False
        known = shared.known()
        shared.kill()
        if on_interrupt is not None:
            on_interrupt(known)
        raise
    finally:
        shared.close(patient=patient)
        if on_note is not None:
            for refusal in shared.refusals:
                on_note(f"{NOT_KEPT}: {refusal}")
        if on_imports is not None and not shared.refusals:
            on_imports(shared.import_seconds)


class _Shared:
    """What the runs of one call share, and the two ways to make them."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._workers: dict[str, Zygote | InProcess] = {}
        self._googles: dict[tuple[str, str | None], GooglePool] = {}
        self._background: BackgroundRuns | None = None
        self._begun: deque[Pipeline | BackgroundRun] = deque()  # those whose results have not come

    def one_by_one(self, specs: Sequence[RunSpec], on_progress: Callable[[RunSpec], OnProgress]) -> Iterator[RunResult]:
        """Makes a run when the one before it is done, in this thread."""
        for number, spec in enumerate(specs, start=1):
            with claim_model_dir(spec), self._pipeline(number, spec, on_progress(spec)) as pipeline:
                self._begun.append(pipeline)
                for stage in pipeline.stages:
                    pipeline.stage(stage)
                result = pipeline.result()
                self._begun.popleft()
                yield result

    def at_once(
        self, specs: Sequence[RunSpec], number_of_runs: int, on_progress: Callable[[RunSpec], OnProgress]
    ) -> Iterator[RunResult]:
        """Makes several at the same time. At most twice as many are begun: the next ones while one takes long."""
        from t5x_harness.runs.background import BackgroundRuns

        def taken() -> RunResult:
            run = self._begun[0]
            for stage in run.stages:
                run.stage(stage)
            result = run.result()
            self._begun.popleft()
            return result

        self._background = background = BackgroundRuns(number_of_runs)
        for number, spec in enumerate(specs, start=1):
            if len(self._begun) == 2 * number_of_runs:
                yield taken()
            with self._pipeline(number, spec, None) as pipeline:
                run = background.begin(spec, pipeline.stages, self._opener(number, spec), on_progress)
            self._begun.append(run)
        while self._begun:
            yield taken()

    def known(self) -> list[RunResult]:
        """What is known of the runs whose results have not come, those aside of which nothing is."""
        return [known for run in self._begun if (known := run.known()).stages]

    @property
    def refusals(self) -> list[str]:
        """Why runs did not begin in the worker that is kept for this shell, though there is one."""
        return [text for worker in self._workers.values() if (text := getattr(worker, "refusal", ""))]

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
            worker.close()
        for google in self._googles.values():
            google.close(patient=patient)
        if self._background is not None:
            self._background.join(patient=patient)

    def _opener(self, number: int, spec: RunSpec) -> OpenPipeline:
        @contextlib.contextmanager
        def opened(on_progress: OnProgress) -> Iterator[Pipeline]:
            with claim_model_dir(spec), self._pipeline(number, spec, on_progress) as pipeline:
                yield pipeline

        return opened

    def _pipeline(self, number: int, spec: RunSpec, on_progress: OnProgress | None) -> Pipeline:
        from t5x_harness.runtime.choice import find_runtime
        from t5x_harness.system.network import run_environment
        from t5x_harness.workers import InProcess

        runtime = find_runtime(spec.runtime)  # type: ignore[arg-type]  # the values are checked there
        if spec.runtime not in self._workers:
            self._workers[spec.runtime] = worker = InProcess() if self._options.in_process else worker_for(runtime)
            if not isinstance(worker, InProcess):
                worker.warm()
        google = None if self._options.network else google_for(spec, self._googles)
        if google is not None:
            google.warm()
        workspace = self._options.workspace / f"{number:02d}-{spec.name}"
        workspace.mkdir(parents=True, exist_ok=True)
        return Pipeline(
            spec,
            zygote=self._workers[spec.runtime],
            workspace=workspace,
            timeout=self._options.timeout,
            on_progress=on_progress,
            t5x_parent=runtime.location,
            env={**run_environment(allowed=self._options.network), **NO_STORE},
            google=google,
        )
