"""Measures the time that each speed trick saves in a cold run of one config.

    python benchmarks/speed_tricks.py [--rounds 5] [--only NAME ...] [--write docs/performance.md]

Every round forks two runs at once from one worker for each trick, one with it and one without. Both go through all
stages with an empty compile cache, and other load slows both alike. A trick saves the difference of their CPU
seconds. The figures are medians over the rounds.

`compile_once` is about runs that share a compile cache: its figures are the means of two runs at once with one cache.

`conversions` is about what an earlier run has kept: its two runs find the compile cache of a third one.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reporting import write_table

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "sample_tasks" / "configs"
CONFIG = "finetune_translate.gin"
STAGES = ("resolve", "plan", "train", "eval", "infer")


def nothing(*_: object, **__: object) -> None:
    """Does nothing, in place of a trick."""


def without(module: str, name: str) -> Callable[[], None]:
    """Returns a function that removes the setup of a trick from the module that calls it."""

    def take_out() -> None:
        found = __import__(module, fromlist=[name])
        assert callable(getattr(found, name))
        setattr(found, name, nothing)

    return take_out


def without_conversions() -> None:
    from tensorflow.python.autograph.impl import api

    del api._TRANSPILER.transform_function


def without_rare_collections() -> None:
    import gc

    gc.set_threshold(700, 10, 10)


TRICKS: Mapping[str, Callable[[], None]] = {
    "conversions": without_conversions,
    "disable_graph_optimization": without("t5x_harness.upstream.short_run", "disable_graph_optimization"),
    "write_small_arrays_whole": without("t5x_harness.upstream.short_run", "write_small_arrays_whole"),
    "share_steps": without("t5x_harness.execute.execution", "share_steps"),
    "compile_cheaply": without("t5x_harness.execute.execution", "compile_cheaply"),
    "compile_once": without("t5x_harness.execute.execution", "compile_once"),
    "rare garbage collection": without_rare_collections,
}
"""The functions that turn off a trick in the process of a run, by name."""


class MeasuredRun:
    """A run in a forked process, which goes through all stages."""

    def __init__(self, argument: Mapping[str, Any], progress: Callable[[dict[str, Any]], None]) -> None:
        self._argument = argument
        self._progress = progress

    def measure(self) -> float:
        """Returns the CPU seconds of all stages in this process."""
        from t5x_harness.execute.process import open_run

        if self._argument["without"]:
            TRICKS[self._argument["trick"]]()
        start = time.process_time()
        session = open_run(self._argument, self._progress)
        for stage in STAGES:
            result = getattr(session, stage)()
            if result["outcome"] != "passed":
                raise RuntimeError(f"{stage}: {result}")
        return time.process_time() - start


def cpu_seconds(zygote: Any, trick: str, *, is_without: bool, cache: Path | None = None) -> float:
    """Returns the CPU seconds of a run; ``cache`` is the compile cache, None for one of its own."""
    from t5x_harness.runtime.compile_cache import FOLDER, compile_cache_environment
    from t5x_harness.spec import Mode, RunSpec

    spec = RunSpec((CONFIG,), search_paths=(str(CONFIGS),), mode=Mode.TRAIN)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        argument = {"spec": spec.to_json(), "workspace": name, "trick": trick, "without": is_without}
        with zygote.start(
            "speed_tricks:MeasuredRun",
            argument,
            log=folder / "run.log",
            cwd=ROOT,
            env=compile_cache_environment((cache or folder) / FOLDER / "jax"),
            python_path=(str(Path(__file__).parent),),
        ) as run:
            return float(run.call("measure"))


def pair(zygote: Any, trick: str) -> tuple[float, float]:
    """Returns the CPU seconds of a run with a trick and of a run without it, at the same time."""
    if trick == "compile_once":
        return twins(zygote, trick, is_without=False), twins(zygote, trick, is_without=True)
    with contextlib.ExitStack() as stack:
        cache = None
        if trick == "conversions":
            cache = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            cpu_seconds(zygote, trick, is_without=False, cache=cache)
        threads = stack.enter_context(concurrent.futures.ThreadPoolExecutor())
        both = (False, True)
        runs = [threads.submit(cpu_seconds, zygote, trick, is_without=each, cache=cache) for each in both]
        return runs[0].result(), runs[1].result()


def twins(zygote: Any, trick: str, *, is_without: bool) -> float:
    """Returns the mean of the CPU seconds of two runs at the same time with one compile cache."""
    with tempfile.TemporaryDirectory() as cache, concurrent.futures.ThreadPoolExecutor() as threads:
        runs = [threads.submit(cpu_seconds, zygote, trick, is_without=is_without, cache=Path(cache)) for _ in range(2)]
        return statistics.mean(run.result() for run in runs)


def table(pairs: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Returns a Markdown table of CPU seconds."""
    lines = ["| trick | run with it | saved | min | max | rounds |", "|---|---|---|---|---|---|"]
    for trick, measured in pairs.items():
        saved = [without_it - with_it for with_it, without_it in measured]
        figures = (
            statistics.median(with_it for with_it, _ in measured),
            statistics.median(saved),
            min(saved),
            max(saved),
        )
        lines.append(f"| {trick} | {' | '.join(f'{figure:.2f} s' for figure in figures)} | {len(saved)} |")
    return "\n".join(lines)


def main() -> None:
    from t5x_harness.runs.pool import worker_for
    from t5x_harness.runtime.choice import find_runtime

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=TRICKS, default=list(TRICKS))
    parser.add_argument("--write", type=Path, help="Markdown file whose table between the two markers is replaced")
    arguments = parser.parse_args()
    pairs: dict[str, list[tuple[float, float]]] = {trick: [] for trick in arguments.only}
    with worker_for(find_runtime("embedded")) as zygote:
        for number in range(arguments.rounds):
            for trick, measured in pairs.items():
                measured.append(pair(zygote, trick))
                print(f"round {number + 1}: {trick} with %.2f s, without %.2f s" % measured[-1], flush=True)
    print(result := table(pairs))
    if arguments.write:
        write_table(arguments.write, "speed_tricks", result)


if __name__ == "__main__":
    sys.exit(main())
