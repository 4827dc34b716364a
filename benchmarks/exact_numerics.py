"""Measures the cost of --exact-numerics and --cpu-isa, and how much the losses of a run without the first differ.

    python benchmarks/exact_numerics.py [--rounds 2] [--write docs/performance.md]

Every round runs a recorded config at full size with and without --exact-numerics, each with an empty compile cache, at
the config's learning rate and at a rate of 1; and with both options, for the level of instructions avx2.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from reporting import report, script

REFERENCE = Path(__file__).resolve().parent.parent / "tests" / "reference"
CONFIG = json.loads((REFERENCE / "trajectories" / "t5_1_1.json").read_text())["gin"]
FAST = (
    "--gin_bindings=utils.create_learning_rate_scheduler.factors = 'constant'",
    "--gin_bindings=utils.create_learning_rate_scheduler.base_learning_rate = 1.0",
)


def run(folder: Path, *options: str) -> tuple[float, dict[str, float]]:
    """Runs the config with an empty compile cache; returns the seconds, and the training losses by step."""
    command = [script("t5x-harness"), "run", "config.gin", f"--python-path={REFERENCE}", "--full-size"]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        subprocess.run(
            [*command, "--slice=v3:1x1", "--format=json", "--output=report.json", *options],
            cwd=folder,
            env={**os.environ, "T5X_HARNESS_CACHE_DIR": cache},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    seconds = time.perf_counter() - started
    (result,) = json.loads((folder / "report.json").read_text())["runs"]
    return seconds, result["metrics"]["train/loss"]


def measure() -> dict[str, float]:
    """Makes one round."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.gin").write_text(CONFIG)
        cheap, losses = run(folder)
        exact, exact_losses = run(folder, "--exact-numerics")
        pinned, _ = run(folder, "--exact-numerics", "--cpu-isa=avx2")
        _, fast = run(folder, *FAST)
        _, exact_fast = run(folder, *FAST, "--exact-numerics")
    return {
        "cheap": cheap,
        "exact": exact,
        "pinned": pinned,
        "exact / cheap": exact / cheap,
        "pinned / exact": pinned / exact,
        "losses differ by (millionths)": 1e6 * largest_difference(losses, exact_losses),
        "at a learning rate of 1 (millionths)": 1e6 * largest_difference(fast, exact_fast),
    }


def largest_difference(losses: dict[str, float], exact: dict[str, float]) -> float:
    """Returns the largest difference of the losses, relative to the exact ones."""
    return max(abs(losses[step] - loss) / abs(loss) for step, loss in exact.items())


if __name__ == "__main__":
    report("exact_numerics", measure, rounds=2, description=__doc__)
