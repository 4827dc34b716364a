"""Measures the time of `t5x-harness lint` for one config, and for a hundred in one call.

    python benchmarks/lint.py [--rounds 5] [--write docs/performance.md]

Each round measures one figure after another, so that a machine whose speed drifts slows all of them alike:

python    starting Python and importing nothing, `python -c pass`
one       `t5x-harness lint` on one config, including the start of Python
hundred   the same on a hundred configs, each a separate file that includes T5X's and a model's

Figures are medians over the rounds; ratios are made inside each round first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from reporting import report

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "sample_tasks" / "configs"
FIRST = "finetune_translate.gin"
COUNT = 100


def call(command: Sequence[str], folder: Path) -> float:
    """Returns the wall seconds of a command, which must succeed."""
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=dict(os.environ), capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return seconds


def write_configs(folder: Path) -> list[str]:
    """Writes configs that differ in one line, each a whole file, so that no text is read twice."""
    text = (CONFIGS / FIRST).read_text(encoding="utf-8")
    names = [f"config_{number:03d}.gin" for number in range(COUNT)]
    for number, name in enumerate(names):
        (folder / name).write_text(f"{text}\nTRAIN_STEPS = {20_000 + number}\n", encoding="utf-8")
    return names


def measure() -> dict[str, float]:
    """Makes one round."""
    lint = [str(Path(sys.executable).with_name("t5x-harness")), "lint", f"--gin_search_paths={CONFIGS}"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = write_configs(folder)
        python = call([sys.executable, "-c", "pass"], folder)
        one = call([*lint, names[0]], folder)
        hundred = call([*lint, *names], folder)
    return {
        "python": python,
        "one": one,
        "hundred": hundred,
        "one / python": one / python,
        "hundred / one": hundred / one,
    }


if __name__ == "__main__":
    report("lint", measure, rounds=5, description=__doc__)
