"""Compares the cost of `pytest -m smoke` with the same work done by three T5X processes.

    python benchmarks/smoke.py [--rounds 5] [--write docs/performance.md]

Each round measures one figure after another, so that a machine whose speed drifts slows all of them alike:

cold      `pytest -m smoke` on one config, with an empty compile cache
further   the time that each config after the first adds to such a call: the difference between several and one
resumed   the cold call with the stage resume, which trains twice more, in processes that are killed and restarted;
          "resumed, warm / warm" is the same ratio for the next figure
warm      the cold call again, with the compile cache that it filled
kept      the same in a shell of `t5x-harness warm`, which has already imported T5X
processes `python -m t5x.train`, then `t5x.eval`, then `t5x.infer` on one config at the sizes that smoke shrinks it to,
          started through `t5x-harness exec`, for the mesh and the T5X in use
plugin    the time to import the plugin in the interpreter of `pytest --version`, by `python -X importtime`

Figures are medians over the rounds; ratios are made inside each round first.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from reporting import report, script

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "sample_tasks" / "configs"
FIRST = "finetune_translate.gin"
FURTHER = ("finetune_classify.gin", "pretrain_stream.gin", "finetune_sums.gin", "pretrain_span_corruption.gin")

# The sizes that FIRST is shrunk to, from the report of its run, so that both sides do the same work.
MODEL = ("network.T5Config.num_encoder_layers = 1", "network.T5Config.num_decoder_layers = 1")
EXAMPLES = ("seqio.Evaluator.num_examples = 8",)
TRAIN = (
    "TRAIN_STEPS = 4",
    "BATCH_SIZE = 8",
    "infer_eval/utils.DatasetConfig.batch_size = 8",
    "train.eval_period = 2",
    "utils.SaveCheckpointConfig.period = 2",
    "EVAL_STEPS = 2",
    "train.stats_period = 1",
    "train/utils.DatasetConfig.seed = 0",
    "RANDOM_SEED = 0",
    "USE_HARDWARE_RNG = True",
)
MESH = ("partitioning.PjitPartitioner.num_partitions = 2",)


def call(command: Sequence[str], cache: Path, folder: Path, variables: Mapping[str, str] | None = None) -> float:
    """Returns the wall seconds of a command, which must succeed."""
    env = {**os.environ, "T5X_HARNESS_CACHE_DIR": str(cache), "TF_CPP_MIN_LOG_LEVEL": "3", **(variables or {})}
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return seconds


def smoke(names: Iterable[str], cache: Path, variables: Mapping[str, str] | None = None, *options: str) -> float:
    """Returns the seconds of one pytest call on these configs."""
    files = [str(CONFIGS / name) for name in names]
    command = [script("pytest"), "-q", "-m", "smoke", "-p", "no:cacheprovider", *options, *files]
    return call(command, cache, ROOT, variables)


@contextlib.contextmanager
def kept_worker(cache: Path, folder: Path) -> Iterator[Mapping[str, str]]:
    """Starts a shell of ``t5x-harness warm``; yields its variables, once it has imported T5X."""
    lines = folder / "warm.env"
    command = [script("t5x-harness"), "warm", f"--env-file={lines}"]
    env = {**os.environ, "T5X_HARNESS_CACHE_DIR": str(cache), "TF_CPP_MIN_LOG_LEVEL": "3"}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE) as process:
        try:
            while not lines.exists():
                if process.poll() is not None:
                    sys.exit(f"{' '.join(command)} failed")
                time.sleep(0.1)
            name, _, value = lines.read_text().strip().removeprefix("export ").partition("=")
            yield {name: value}
        finally:
            process.terminate()
            process.communicate()


def t5x(mode: str, gin: str, bindings: Iterable[str], folder: Path) -> float:
    """Returns the seconds of one T5X process, without a compile cache."""
    harness = [script("t5x-harness"), "exec", "--slice", "v3-8", "--"]
    program = [sys.executable, "-m", f"t5x.{mode}", f"--gin_search_paths={CONFIGS}", f"--gin_file={gin}"]
    return call([*harness, *program, *(f"--gin.{binding}" for binding in bindings)], Path("off"), folder)


def processes(folder: Path) -> float:
    """Returns the seconds of three T5X processes, train, eval and infer, from a checkpoint that another one made."""
    first, last = folder / "start" / "checkpoint_0", folder / "model" / "checkpoint_4"
    new = (f"MODEL_DIR = '{first.parent}'", "utils.RestoreCheckpointConfig.path = []", *MODEL, *TRAIN)
    t5x("train", FIRST, (*new, "TRAIN_STEPS = 0"), folder)  # a smoke run would generate it
    task = ("MIXTURE_OR_TASK_NAME = 'sample_translate'", "DROPOUT_RATE = 0.0")
    restore = (f"CHECKPOINT_PATH = '{last}'", *MODEL, *MESH, "utils.DatasetConfig.batch_size = 8")
    goes_on = (f"MODEL_DIR = '{last.parent}'", f"INITIAL_CHECKPOINT_PATH = '{first}'")
    return (
        t5x("train", FIRST, (*goes_on, *MODEL, *TRAIN, *EXAMPLES), folder)
        + t5x(
            "eval", "eval_translate.gin", (f"EVAL_OUTPUT_DIR = '{folder / 'eval'}'", *task, *restore, *EXAMPLES), folder
        )
        + t5x("infer", "infer_translate.gin", (f"INFER_OUTPUT_DIR = '{folder / 'infer'}'", *task, *restore), folder)
    )


def plugin_milliseconds() -> float:
    """Returns the milliseconds to import the plugin after pytest's own imports."""
    program = "import pytest, _pytest.config, t5x_harness.plugin"
    done = subprocess.run(
        [sys.executable, "-P", "-X", "importtime", "-c", program], capture_output=True, text=True, check=True
    )
    line = next(line for line in done.stderr.splitlines() if re.search(r"\|\s+t5x_harness\.plugin$", line))
    return int(line.split("|")[1]) / 1000


def warm_up() -> None:
    """Makes the call of a round once; the first one compiles the modules of a new environment."""
    with tempfile.TemporaryDirectory() as name:
        smoke([FIRST], Path(name))


def measure() -> dict[str, float]:
    """Makes one round."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "work").mkdir()
        one = smoke([FIRST], folder / "cache-one")
        many = smoke([FIRST, *FURTHER], folder / "cache-many")
        resumed = smoke([FIRST], folder / "cache-resumed", None, "--t5x-resume")
        warm = smoke([FIRST], folder / "cache-one")
        warm_resumed = smoke([FIRST], folder / "cache-resumed", None, "--t5x-resume")
        with kept_worker(folder / "cache-one", folder) as variables:
            kept = smoke([FIRST], folder / "cache-one", variables)
        three = processes(folder / "work")
    return {
        "cold": one,
        "further": (many - one) / len(FURTHER),
        "resumed": resumed,
        "warm": warm,
        "kept": kept,
        "processes": three,
        "resumed / cold": resumed / one,
        "resumed, warm / warm": warm_resumed / warm,
        "cold / processes": one / three,
        "further / processes": (many - one) / len(FURTHER) / three,
        "plugin import (ms)": plugin_milliseconds(),
    }


if __name__ == "__main__":
    report("smoke", measure, rounds=5, description=__doc__, warm_up=warm_up)
