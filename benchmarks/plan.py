"""Measures the cost of resolve and plan for a large model in a worker that has imported everything.

    python benchmarks/plan.py [--rounds 3] [--write docs/performance.md]

Each round measures one figure after another, so that a machine whose speed drifts slows all of them alike:

imports   starting a worker, which imports JAX, TensorFlow and T5X; paid once for all runs
xl, xxl   resolve and plan of fine-tuning T5 1.1 at full size on a tiny task, on v3-32 and v3-128, in a forked run

A further figure of each model is the peak resident memory of the run, including the memory that it shares with the
worker. Figures are medians over the rounds; ratios are made inside each round first.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reporting import report

from t5x_harness.findings.rule import FILES
from t5x_harness.runs.local import LocalExecutor
from t5x_harness.runs.pool import worker_for
from t5x_harness.runs.run import Run
from t5x_harness.runtime.choice import find_runtime
from t5x_harness.spec import Outcome, RunSpec, Stage
from t5x_harness.workers.run import RunProcess
from t5x_harness.workers.zygote import Zygote

SLICES: Mapping[str, str] = {"xl": "v3-32", "xxl": "v3-128"}

CONFIG = """\
from __gin__ import dynamic_registration
import __main__ as train_script
import seqio
from t5x import partitioning
include 't5x/examples/t5/t5_1_1/{size}.gin'
include 't5x/configs/runs/finetune.gin'
import counting
MIXTURE_OR_TASK_NAME = 'counting'
TASK_FEATURE_LENGTHS = {{'inputs': 512, 'targets': 114}}
INITIAL_CHECKPOINT_PATH = 'gs://t5-data/pretrained_models/t5x/t5_1_1_{size}/checkpoint_1000000'
TRAIN_STEPS = 1_020_000
LOSS_NORMALIZING_FACTOR = 233_472
USE_CACHED_TASKS = False
VOCABULARY = @seqio.ByteVocabulary()
partitioning.PjitPartitioner.num_partitions = 8
"""


class Noting:
    """Starts runs as a worker does, and keeps the last one to inspect its process."""

    def __init__(self, zygote: Zygote) -> None:
        self._zygote = zygote
        self.last: RunProcess | None = None

    def start(self, *args: Any, **kwargs: Any) -> RunProcess:
        """See :meth:`Zygote.start`."""
        self.last = self._zygote.start(*args, **kwargs)
        return self.last


def plan(size: str, zygote: Zygote, folder: Path) -> tuple[float, float]:
    """Returns the wall seconds of resolve and plan of a model, and the peak resident memory of their process in GiB."""
    for name, text in {**FILES, "run.gin": CONFIG.format(size=size)}.items():
        (folder / name).write_text(text, encoding="utf-8")
    spec = RunSpec(("run.gin",), slice=SLICES[size], python_path=(str(folder),), cwd=str(folder))
    starter = Noting(zygote)
    with Run(spec, LocalExecutor(starter), workspace=folder / size) as run:
        start = time.perf_counter()
        result = run.stage(Stage.PLAN)
        seconds = time.perf_counter() - start
        if result.outcome is not Outcome.PASSED or starter.last is None:
            sys.exit(f"planning {size} failed: {result}")
        return seconds, peak_gibibytes(starter.last.pid)


def peak_gibibytes(pid: int) -> float:
    """Returns the peak resident memory of a process so far."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(match[1]) / 2**20 if match else float("nan")


def measure() -> dict[str, float]:
    """Makes one round."""
    start = time.perf_counter()
    with worker_for(find_runtime("auto")) as zygote, tempfile.TemporaryDirectory() as name:
        zygote.start("builtins:print", {}, log=Path(name) / "imports.log").close()
        imports = time.perf_counter() - start
        found = {size: plan(size, zygote, Path(name)) for size in SLICES}
    return {
        "imports": imports,
        **{size: seconds for size, (seconds, _) in found.items()},
        **{f"{size} / imports": seconds / imports for size, (seconds, _) in found.items()},
        **{f"{size}, peak memory (GiB)": peak for size, (_, peak) in found.items()},
    }


if __name__ == "__main__":
    report("plan", measure, rounds=3, description=__doc__ or "")
