"""Runs of several configs, as a command makes them, out of one pool."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_harness.runs.model_dirs import claim_model_dir, ensure_model_dirs
from t5x_harness.runs.pipeline import OnProgress, Pipeline
from t5x_harness.runs.pool import RunContext, RunPool
from t5x_harness.spec import STAGE_SECONDS, AotMode, RunResult, RunSpec, Stage

if TYPE_CHECKING:
    from t5x_harness.runs.background import BackgroundRun


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

    at_once = 1 if options.in_process else min(runs_at_once(options.ahead), len(specs))
    pool = RunPool(timeout=options.timeout, in_process=options.in_process, at_once=at_once)
    runs = _Runs(pool, options, on_progress or (lambda spec: lambda event: None))
    patient = True
    try:
        yield from (runs.one_by_one(specs) if at_once < 2 else runs.at_once(specs))
    except (KeyboardInterrupt, GeneratorExit):
        patient = False
        known = runs.known()
        pool.kill()
        if on_interrupt is not None:
            on_interrupt(known)
        raise
    finally:
        pool.close(patient=patient)
        if on_note is not None:
            for refusal in pool.refusals:
                on_note(refusal)
        if on_imports is not None and not pool.refusals:
            on_imports(pool.import_seconds)


def plan_specs(specs: Sequence[RunSpec], aot: AotMode | None = None) -> list[RunResult]:
    """Runs the stages of configs that execute nothing, as before they are sent as jobs; nothing of it is kept.

    Args:
      specs: with their modes; golden plans are not looked at.
      aot: how their programs are compiled for the slice; None for not at all.
    """
    from t5x_harness.system.own_folders import own_folder

    planned = [
        spec.with_settings(plan_golden=None, plan_golden_update=False, until=Stage.AOT, aot=aot) for spec in specs
    ]
    with own_folder("t5x-harness-plan-") as folder:
        return list(run_specs(planned, RunOptions(folder.path, timeout=STAGE_SECONDS)))


class _Runs:
    """The two ways to make the runs of one call."""

    def __init__(self, pool: RunPool, options: RunOptions, on_progress: Callable[[RunSpec], OnProgress]) -> None:
        self._pool = pool
        self._options = options
        self._on_progress = on_progress
        self._begun: deque[Pipeline | BackgroundRun] = deque()  # those whose results have not come

    def one_by_one(self, specs: Sequence[RunSpec]) -> Iterator[RunResult]:
        """Makes a run when the one before it is done, in this thread."""
        for number, spec in enumerate(specs, start=1):
            with self._open(spec, self._factory(number, spec), self._on_progress(spec)) as pipeline:
                self._begun.append(pipeline)
                yield self._taken()

    def at_once(self, specs: Sequence[RunSpec]) -> Iterator[RunResult]:
        """Makes several at the same time. At most twice as many are begun: the next ones while one takes long."""
        for number, spec in enumerate(specs, start=1):
            if len(self._begun) == 2 * self._pool.at_once:
                yield self._taken()
            factory = self._factory(number, spec)
            make = functools.partial(self._open, spec, factory)
            self._begun.append(self._pool.begin(spec, factory(None).stages, make, self._on_progress))
        while self._begun:
            yield self._taken()

    def known(self) -> list[RunResult]:
        """Returns what is known of the runs whose results have not come, except those of which nothing is."""
        return [known for run in self._begun if (known := run.known()).stages]

    def _taken(self) -> RunResult:
        """Returns the result of the first run that was begun."""
        run = self._begun[0]
        for stage in run.stages:
            run.stage(stage)
        result = run.result()
        self._begun.popleft()
        return result

    def _factory(self, number: int, spec: RunSpec) -> Callable[[OnProgress | None], Pipeline]:
        self._pool.warm(spec, google=not self._options.network)
        workspace = self._options.workspace / f"{number:02d}-{spec.name}"
        workspace.mkdir(parents=True, exist_ok=True)
        return self._pool.pipeline_factory(spec, workspace, RunContext(network=self._options.network))

    @contextlib.contextmanager
    def _open(
        self, spec: RunSpec, factory: Callable[[OnProgress | None], Pipeline], on_progress: OnProgress
    ) -> Iterator[Pipeline]:
        with claim_model_dir(spec), factory(on_progress) as pipeline:
            yield pipeline
