"""Measures the cost of `pytest -m smoke` and of emulated jobs on large slices and on the smallest one.

    python benchmarks/slices.py [--rounds 3] [--write docs/performance.md]

Each round runs one config in separate calls, each with an empty compile cache:

v3-8           8 devices
v2-128, v3-512 the mesh of 128 and of 512 devices, of which runs execute on 8
job, …         `pytest -m tpu --t5x-vertex=emulated` on a test of the config, whose job executes on all its devices

Figures are medians over the rounds; ratios are made inside each round first.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from reporting import report, script
from smoke import CONFIGS, FIRST, ROOT, call

SLICES = ("v3-8", "v2-128", "v3-512")
MACHINES = {"v3-8": ("TPU_V3", 8), "v2-128": ("TPU_V2", 128)}
# One part for every data position of the largest slice.
BATCHES = ("BATCH_SIZE = 512", "infer_eval/utils.DatasetConfig.batch_size = 512")


PYTEST = (script("pytest"), "-q", "-p", "no:cacheprovider")
TEST = f"""
import pytest

@pytest.mark.tpu(accelerator_type={{!r}}, accelerator_count={{}})
def test_training(t5x_run):
    assert t5x_run({str(CONFIGS / FIRST)!r}, bindings={list(BATCHES)}, search_paths=[{str(CONFIGS)!r}]).passed
"""


def smoke(slice_name: str) -> float:
    """Returns the seconds of a call on a slice."""
    command = [*PYTEST, "-m", "smoke", str(CONFIGS / FIRST)]
    with tempfile.TemporaryDirectory() as cache:
        bindings = [f"--t5x-gin={binding}" for binding in BATCHES]
        return call([*command, f"--t5x-slice={slice_name}", *bindings], Path(cache), ROOT)


def job(slice_name: str) -> float:
    """Returns the seconds of a call that sends a job to the emulated Vertex AI and waits for it."""
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_training.py").write_text(TEST.format(*MACHINES[slice_name]), encoding="utf-8")
        return call([*PYTEST, "-m", "tpu", "--t5x-vertex=emulated"], Path(cache), Path(folder))


def measure() -> dict[str, float]:
    """Makes one round."""
    seconds = {name: smoke(name) for name in SLICES} | {f"job, {name}": job(name) for name in MACHINES}
    small, *large = SLICES
    return {
        **seconds,
        **{f"{name} / {small}": seconds[name] / seconds[small] for name in large},
        "job, v2-128 / v3-8": seconds["job, v2-128"] / seconds["job, v3-8"],
    }


if __name__ == "__main__":
    report("slices", measure, rounds=3, description=__doc__)
