"""What `pytest -m smoke` costs on a large slice, beside the same config on the smallest.

    python benchmarks/slices.py [--rounds 3] [--write docs/performance.md]

Each round runs one config in calls of their own, each with an empty compile cache:

v3-8           8 devices
v2-128, v3-512 the mesh of 128 and of 512 devices, of which runs execute on 8

Figures are medians over the rounds; ratios are made inside each round first.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from reporting import report
from smoke import CONFIGS, FIRST, ROOT, call

SLICES = ("v3-8", "v2-128", "v3-512")
# A part for every data position of the largest.
BATCHES = ("BATCH_SIZE = 512", "infer_eval/utils.DatasetConfig.batch_size = 512")


def smoke(slice_name: str) -> float:
    """Seconds of a call on a slice."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "smoke", "-p", "no:cacheprovider", str(CONFIGS / FIRST)]
    with tempfile.TemporaryDirectory() as cache:
        bindings = [f"--t5x-gin={binding}" for binding in BATCHES]
        return call([*command, f"--t5x-slice={slice_name}", *bindings], Path(cache), ROOT)


def measure() -> dict[str, float]:
    """One round."""
    seconds = {name: smoke(name) for name in SLICES}
    small, *large = SLICES
    return {**seconds, **{f"{name} / {small}": seconds[name] / seconds[small] for name in large}}


if __name__ == "__main__":
    report("slices", measure, rounds=3, description=__doc__)
