"""Measures memory and time of converting a T5 1.1 XL in bfloat16: 2.85 billion random parameters.

It needs 18 GB of disk in TMPDIR. Memory is the peak resident memory of each command's process.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from reporting import report, script

from t5x_harness.conversion.architecture import Architecture, parameters
from t5x_harness.conversion.stored import LazyArray, write_checkpoint

XL = Architecture(
    vocab_size=32128,
    emb_dim=2048,
    num_heads=32,
    head_dim=64,
    mlp_dim=5120,
    encoder_layers=24,
    decoder_layers=24,
    is_gated=True,
    own_logits=True,
)
STEP = 1000
GB = 1e9


def random_array(shape: tuple[int, ...]) -> LazyArray:
    """Returns an array that does not compress."""
    dtype = np.dtype(ml_dtypes.bfloat16)

    def make() -> Any:
        return np.random.default_rng(0).integers(0, 1 << 16, shape, np.uint16).view(dtype)

    return LazyArray(shape, dtype, make)


def convert(source: Path, form: str, output: Path) -> tuple[float, float]:
    """Returns the seconds that a conversion takes, and its peak memory in GB."""
    words = [script("t5x-harness"), "convert", str(source), "--to", form, "--output", str(output)]
    begin = time.perf_counter()
    pid = os.spawnv(os.P_NOWAIT, words[0], words)
    _, status, usage = os.wait4(pid, 0)
    assert status == 0, words
    return time.perf_counter() - begin, usage.ru_maxrss * 1024 / GB


def measure() -> dict[str, float]:
    """Makes one round."""
    arrays = {each.name: random_array(each.shape) for each in parameters(XL)}
    sizes = [array.nbytes for array in arrays.values()]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        checkpoint = write_checkpoint(folder / "run", STEP, arrays)
        there, most_there = convert(checkpoint, "transformers", folder / "hf")
        back, most_back = convert(folder / "hf", "t5x", folder / "back")
    return {
        "checkpoint (GB)": sum(sizes) / GB,
        "largest array (GB)": max(sizes) / GB,
        "to transformers, peak memory (GB)": most_there,
        "back to T5X, peak memory (GB)": most_back,
        "to transformers": there,
        "back to T5X": back,
    }


if __name__ == "__main__":
    report("conversion", measure, rounds=1, description=__doc__)
