"""Counts the steps that preemptions cost, with T5X's trainer and with that of t5x_harness.preemption.

    python benchmarks/preemption.py [--kills 50] [--period 50] [--grace 30] [--seed 0] [--write docs/resume.md]

A training of a tiny model is preempted again and again: SIGTERM at a random moment, and SIGKILL if it has not ended
after the grace. Each time it is started again in the same MODEL_DIR, as a job on a Spot machine is. A preemption costs
the steps that were begun before it and that the next start does not have. Every start is a fork of one worker. Both
trainings go on at the same time.
"""

import argparse
import concurrent.futures
import contextlib
import os
import random
import runpy
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reporting import write_table

ROOT = Path(__file__).resolve().parent.parent
TRAINERS = {"trainer.Trainer": "WithT5X", "preemption.Trainer": "WithPreemption"}
GIN = """
from __gin__ import dynamic_registration
import __main__ as train_script
from t5x import trainer
from t5x import utils
from t5x.examples.t5 import network
import t5x_harness.sample_tasks.tasks
import counting_trainers
include 'models/tiny_bytes.gin'
include 't5x/configs/runs/pretrain.gin'
MIXTURE_OR_TASK_NAME = 'sample_stream'
TASK_FEATURE_LENGTHS = {{'inputs': 20, 'targets': 20}}
TRAIN_STEPS = 1_000_000
BATCH_SIZE = 8
DROPOUT_RATE = 0.1
USE_CACHED_TASKS = False
MODEL_DIR = '{folder}/model'
network.T5Config.emb_dim = 16
network.T5Config.mlp_dim = 32
train/utils.DatasetConfig.pack = False
train_eval/utils.DatasetConfig.pack = False
train_script.train:
  trainer_cls = @counting_trainers.{trainer}
  eval_period = {eval_period}
counting_trainers.{trainer}:
  num_microbatches = None
  learning_rate_fn = @utils.create_learning_rate_scheduler()
utils.SaveCheckpointConfig:
  period = {period}
  keep = 2
"""
COUNTING = """
import os
from t5x import trainer
from t5x_harness import preemption


class Counting:
    def train(self, batch_iter, num_steps, start_step=None):
        def batches():
            for step in range(start_step, start_step + num_steps):
                os.pwrite(file, b"%8d" % step, 0 if step == start_step and self.first else 8)
                self.first = False
                yield next(batch_iter)
        file = os.open("steps", os.O_CREAT | os.O_WRONLY)
        try:
            return super().train(batches(), num_steps, start_step=start_step)
        finally:
            os.close(file)
    first = True


class WithT5X(Counting, trainer.Trainer):
    pass


class WithPreemption(Counting, preemption.Trainer):
    pass
"""


class Training:
    """The training in the forked process."""

    def __init__(self, argument: Mapping[str, Any], progress: Callable[[Mapping[str, Any]], None]) -> None:
        from t5x_harness.upstream.short_run import configure_for_short_run

        configure_for_short_run()

    def train(self) -> None:
        """Does what ``python -m t5x.train`` does."""
        sys.argv = ["t5x.train", "--gin_file=run.gin", f"--gin_search_paths={ROOT}/sample_tasks/configs"]
        runpy.run_module("t5x.train", run_name="__main__", alter_sys=True)


def steps_of(folder: Path) -> tuple[int, int] | None:
    """Returns the step at which the last start began and the step that it reached; None before its first step."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        text = (folder / "steps").read_text()
        return int(text[:8]), int(text[8:16])
    return None


def preempted(zygote: Any, folder: Path, after: float, grace: float, environment: Mapping[str, str]) -> tuple[int, int]:
    """Trains until ``after`` seconds from the first step, and preempts the training.

    Returns:
      The step at which the training began, and the number of steps that were begun when it ended.
    """
    (folder / "steps").unlink(missing_ok=True)
    with zygote.start(
        "preemption:Training",
        {},
        log=folder / "run.log",
        cwd=folder,
        env=environment,
        python_path=(str(Path(__file__).parent), str(folder)),
    ) as run:

        def train() -> None:
            with contextlib.suppress(Exception):  # a preempted training ends with one
                run.call("train")

        thread = threading.Thread(target=train)
        thread.start()
        while steps_of(folder) is None:
            if not thread.is_alive():
                raise RuntimeError(f"the training ended before its first step; see {folder}/run.log")
            time.sleep(0.01)
        time.sleep(after)
        os.kill(run.pid, signal.SIGTERM)
        thread.join(grace)
        if thread.is_alive():
            os.kill(run.pid, signal.SIGKILL)
        thread.join()
    found = steps_of(folder)
    assert found is not None
    return found[0], found[1] + 1


def lost_steps(zygote: Any, trainer: str, arguments: argparse.Namespace) -> Iterator[int]:
    """Yields the steps that each preemption of a training costs."""
    from t5x_harness.runtime.compile_cache import compile_cache_environment, compile_cheaply

    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = GIN.format(
            folder=folder, trainer=TRAINERS[trainer], period=arguments.period, eval_period=20_000 * arguments.period
        )
        (folder / "run.gin").write_text(text, encoding="utf-8")
        (folder / "counting_trainers.py").write_text(COUNTING, encoding="utf-8")
        environment = {"JAX_PLATFORMS": "cpu", **compile_cache_environment(folder / "cache")}
        compile_cheaply(environment)
        begun = 0
        for number in range(arguments.kills + 1):  # the last start only shows where it goes on
            first, reached = preempted(zygote, folder, chance.uniform(0, 2), arguments.grace, environment)
            if number:
                yield begun - first
            begun = reached


def table(lost: Mapping[str, Sequence[int]], arguments: argparse.Namespace) -> str:
    """Returns a Markdown table of the steps that preemptions cost."""
    lines = [f"| trainer, saving each {arguments.period} steps | preemptions | median | max |", "|---|---|---|---|"]
    for trainer, steps in lost.items():
        lines.append(f"| `{trainer}` | {len(steps)} | {statistics.median(steps):g} | {max(steps)} |")
    return "\n".join(lines)


def main() -> None:
    from t5x_harness.runs.pool import worker_for
    from t5x_harness.runtime.choice import find_runtime

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--period", type=int, default=50)
    parser.add_argument("--grace", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, help="Markdown file whose table between the two markers is replaced")
    arguments = parser.parse_args()

    def count(trainer: str) -> list[int]:
        lost = []
        for steps in lost_steps(zygote, trainer, arguments):
            lost.append(steps)
            print(f"{trainer}: preemption {len(lost)} cost {steps} steps", flush=True)
        return lost

    with worker_for(find_runtime("embedded")) as zygote, concurrent.futures.ThreadPoolExecutor() as threads:
        lost = dict(zip(TRAINERS, threads.map(count, TRAINERS), strict=True))
    print(result := table(lost, arguments))
    if arguments.write:
        write_table(arguments.write, "preemption", result)


if __name__ == "__main__":
    main()
