"""What each trick for speed saves in a cold run of one config.

    python benchmarks/speed_tricks.py [--rounds 5] [--only NAME ...] [--write docs/performance.md]

Every round forks runs from one worker, each through all stages with an empty compile cache: one without each trick, and
one with all of them before and after it. A trick saves the difference of the run's CPU seconds to the mean of these
two. A machine with other work to do makes them less wrong than wall seconds. The figures are medians over the rounds.

Two of the tricks act before the fork:

conversions  AutoGraph's conversions of SeqIO's functions are in the worker; without them, the run makes them
frames       memory for all frames; since the fork stands on them, each run of this pair has a thread of its own

`skip_zonal_bucket_probe` is for runs on gs://, so it is compared with a run there.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "sample_tasks" / "configs"
CONFIG = "finetune_translate.gin"
BUCKET = ("MODEL_DIR = 'gs://my-bucket/run'", "INITIAL_CHECKPOINT_PATH = 'gs://my-bucket/pretrained/checkpoint_10000'")
STAGES = ("resolve", "plan", "train", "eval", "infer")


def nothing(*_: object, **__: object) -> None:
    """What is done in place of a trick."""


def without(module: str, name: str) -> Callable[[], None]:
    """Takes a function that sets a trick up out of the module that calls it."""

    def take_out() -> None:
        found = __import__(module, fromlist=[name])
        assert callable(getattr(found, name))
        setattr(found, name, nothing)

    return take_out


def without_conversions() -> None:
    from tensorflow.python.autograph.impl import api

    api._TRANSPILER._cache = type(api._TRANSPILER._cache)()


def without_rare_collections() -> None:
    import gc

    gc.set_threshold(700, 10, 10)


TRICKS: Mapping[str, tuple[str, Callable[[], None]]] = {
    "conversions": ("run", without_conversions),
    "disable_graph_optimization": ("run", without("t5x_harness.upstream.short_run", "disable_graph_optimization")),
    "inline_assert_ops": ("run", without("t5x_harness.upstream.short_run", "inline_assert_ops")),
    "whole small arrays": ("run", without("t5x_harness.upstream.short_run", "write_small_arrays_whole")),
    "shared steps": ("run", without("t5x_harness.execute.session", "share_steps")),
    "cheap compile options": ("run", without("t5x_harness.execute.session", "compile_cheaply")),
    "rare garbage collection": ("run", without_rare_collections),
    "preallocated frames": ("run in a thread", nothing),
    "skip_zonal_bucket_probe": ("run on gs://", without("t5x_harness.upstream.short_run", "skip_zonal_bucket_probe")),
}
"""By name: what a run without the trick is compared with, and what takes it out of the run."""


class MeasuredRun:
    """In the forked process: all stages of a run."""

    def __init__(self, argument: Mapping[str, Any], progress: Callable[[dict[str, Any]], None]) -> None:
        self._argument = argument
        self._progress = progress

    def measure(self) -> float:
        """CPU seconds of all stages, that this process and its children use."""
        trick, in_thread = self._argument["without"], self._argument["in_thread"]
        if trick:
            TRICKS[trick][1]()
        if not in_thread:
            return self._stages()
        from t5x_harness.workers.roomy_stack import call_with_room

        found: list[float] = []
        call = (lambda function: function()) if trick == "preallocated frames" else call_with_room
        thread = threading.Thread(target=lambda: found.append(call(self._stages)))
        thread.start()
        thread.join()
        return found[0]

    def _stages(self) -> float:
        from t5x_harness.execute.session import open_session

        start = time.process_time()
        session = open_session(self._argument, self._progress)
        for stage in STAGES:
            result = getattr(session, stage)()
            if result["outcome"] != "passed":
                raise RuntimeError(f"{stage}: {result}")
        return time.process_time() - start


class Bench:
    """Starts runs from one worker."""

    def __init__(self, zygote: Any, google: Any, folder: Path) -> None:
        self._zygote = zygote
        self._google = google
        self._folder = folder
        self._number = 0

    def run(self, kind: str, trick: str | None) -> float:
        """CPU seconds of a run of a kind without a trick; None for with all."""
        from t5x_harness.spec import Mode, RunSpec
        from t5x_harness.workers import compile_cache_environment

        self._number += 1
        folder = self._folder / str(self._number)
        on_gs = kind == "run on gs://"
        spec = RunSpec((CONFIG,), search_paths=(str(CONFIGS),), bindings=BUCKET if on_gs else (), mode=Mode.TRAIN)
        folder.mkdir()
        argument = {
            "spec": spec.to_json(),
            "workspace": str(folder),
            "without": trick,
            "in_thread": kind == "run in a thread",
        }
        env = {**compile_cache_environment(folder / "cache"), **(self._google.environment() if on_gs else {})}
        with self._zygote.start(
            "speed_tricks:MeasuredRun",
            argument,
            log=folder / "run.log",
            cwd=ROOT,
            env=env,
            python_path=(str(Path(__file__).parent),),
        ) as run:
            return float(run.call("measure"))


@contextlib.contextmanager
def bench() -> Iterator[Bench]:
    from t5x_harness.google.session import GoogleSession
    from t5x_harness.runs.pipeline import worker_for
    from t5x_harness.runtime.choice import find_runtime

    google = GoogleSession()
    google.start()
    try:
        with worker_for(find_runtime("embedded")) as zygote, tempfile.TemporaryDirectory() as name:
            yield Bench(zygote, google, Path(name))
    finally:
        google.close()


def table(saved: Mapping[str, Sequence[float]]) -> str:
    """A Markdown table of CPU seconds."""
    lines = ["| CPU seconds | median | min | max |", "|---|---|---|---|"]
    for name, values in saved.items():
        cells = (f"{f(values):.2f} s" for f in (statistics.median, min, max))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=TRICKS, default=list(TRICKS))
    parser.add_argument("--write", type=Path, help="Markdown file whose table between the two markers is replaced")
    arguments = parser.parse_args()
    kinds = sorted({TRICKS[trick][0] for trick in arguments.only})
    found: dict[str, list[float]] = {name: [] for name in (*kinds, *arguments.only)}
    with bench() as runs:
        for number in range(arguments.rounds):
            for kind in kinds:
                found[kind].append(runs.run(kind, None))
                for trick in (trick for trick in arguments.only if TRICKS[trick][0] == kind):
                    seconds = runs.run(kind, trick)
                    found[kind].append(runs.run(kind, None))
                    found[trick].append(seconds - statistics.mean(found[kind][-2:]))
                    print(f"round {number + 1}: {trick} {found[trick][-1]:.2f} of {found[kind][-1]:.2f}", flush=True)
    print(result := table(found))
    if arguments.write:
        text = arguments.write.read_text(encoding="utf-8")
        head, tail = text.split("<!-- speed_tricks -->")[0], text.split("<!-- /speed_tricks -->")[1]
        arguments.write.write_text(f"{head}<!-- speed_tricks -->\n{result}\n<!-- /speed_tricks -->{tail}", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
