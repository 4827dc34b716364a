"""What --exact-numerics costs, and how far the losses of a run without it are from those with it.

    python benchmarks/exact_numerics.py [--rounds 2] [--write docs/performance.md]

Every round runs one config through all stages three times: with cheap compilation and with T5X's own, each with a
compile cache of its own that is empty, and the latter again with the cache that it has filled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from reporting import report

CONFIGS = Path(__file__).resolve().parent.parent / "sample_tasks" / "configs"


def run(cache: Path, *options: str) -> tuple[float, dict[str, float]]:
    """Runs the config; returns seconds, and its training losses by step."""
    command = [sys.executable, "-m", "t5x_harness", "run", str(CONFIGS / "finetune_translate.gin")]
    with tempfile.NamedTemporaryFile(suffix=".json") as output:
        started = time.perf_counter()
        subprocess.run(
            [*command, f"--gin_search_paths={CONFIGS}", "--format=json", f"--output={output.name}", *options],
            env={**os.environ, "T5X_HARNESS_CACHE_DIR": str(cache)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        seconds = time.perf_counter() - started
        (result,) = json.loads(Path(output.name).read_text())["runs"]
    return seconds, result["metrics"]["train/loss"]


def measure() -> dict[str, float]:
    """Makes one round."""
    with tempfile.TemporaryDirectory() as folder:
        cheap, cheap_losses = run(Path(folder, "cheap"))
        exact, exact_losses = run(Path(folder, "exact"), "--exact-numerics")
        again, _ = run(Path(folder, "exact"), "--exact-numerics")
    differences = (abs(cheap_losses[step] - loss) / abs(loss) for step, loss in exact_losses.items())
    return {
        "cheap": cheap,
        "exact": exact,
        "exact again": again,
        "exact / cheap": exact / cheap,
        "largest difference of a loss (millionths)": 1e6 * max(differences),
    }


if __name__ == "__main__":
    report("exact_numerics", measure, rounds=2, description=__doc__)
