"""Runs of several configs from one pool, for commands."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t5x_harness.runs.model_dirs import ensure_model_dirs
from t5x_harness.runs.pool import RunContext, RunPool, runs_at_once
from t5x_harness.spec import STAGE_SECONDS, AotMode, RunResult, RunSpec, Stage

if TYPE_CHECKING:
    from t5x_harness.runs.run import Run
    from t5x_harness.workers.run import OnProgress


def run_specs(
    specs: Sequence[RunSpec],
    workspace: Path,
    *,
    timeout: float | None = None,
    in_process: bool = False,
    network: bool = False,
    ahead: int | None = None,
    on_progress: Callable[[RunSpec], OnProgress] | None = None,
    on_note: Callable[[str], None] | None = None,
    on_imports: Callable[[float], None] | None = None,
    on_interrupt: Callable[[Sequence[RunResult]], None] | None = None,
) -> Generator[RunResult]:
    """Runs configs, several at once, and yields their results in order.

    The worker imports while the first config is linted; no process is left behind, however the caller ends.

    Args:
      specs: the specs of the runs.
      workspace: a folder for the runs' own files; each run gets a subfolder.
      timeout: the seconds that one stage may take.
      in_process: whether to run in this process, for a debugger.
      network: whether runs may reach beyond this machine; ``gs://`` is then the real one.
      ahead: how many runs may work in addition to the one whose result comes next; None for the number of cores, at
        most 3.
      on_progress: a function that makes the receiver of a run's progress events, in this thread, when its result comes
        next.
      on_note: a function that is called at the end with notes on the call as a whole.
      on_imports: a function that is called at the end with the seconds spent waiting for imports, unless a note has
        them.
      on_interrupt: a function that is called, if this is interrupted or closed early, with the results so far of runs
        that were begun and whose results did not come; by then all of them are being killed, and nothing is waited for
        yet.

    Raises:
      ModelDirError: a run cannot have its folder; it was not started, nor was any other if that was foreseeable.
      RuntimeError: a run asks for an installed T5X, and none is installed.
    """
    ensure_model_dirs(specs)
    parallel = 1 if in_process else min(runs_at_once(ahead), len(specs))
    pool = RunPool(timeout=timeout, in_process=in_process, parallel=parallel)

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
        pool.close(patient=patient)
        if on_note is not None:
            for refusal in pool.refusals:
                on_note(refusal)
        if on_imports is not None and not pool.refusals:
            on_imports(pool.import_seconds)


def plan_specs(specs: Sequence[RunSpec], aot: AotMode | None = None) -> list[RunResult]:
    """Runs the stages of configs that execute nothing, as before sending jobs; nothing is kept.

    Args:
      specs: the specs of the runs, with modes; golden plans are ignored.
      aot: how their programs are compiled for the slice; None for not at all.
    """
    from t5x_harness.system.own_folders import own_folder

    planned = [
        spec.with_settings(plan_golden=None, plan_golden_update=False, until=Stage.AOT, aot=aot) for spec in specs
    ]
    with own_folder("t5x-harness-plan-") as folder:
        return list(run_specs(planned, folder.path, timeout=STAGE_SECONDS))
