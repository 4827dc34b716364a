"""Loads or makes conversions, and reports which ones it then has and how a pipeline uses them.

This is for a fork of a process that has imported SeqIO and converted nothing.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import seqio
import tensorflow as tf
from tensorflow.python.autograph.impl import api

from t5x_harness.upstream.autograph import SEQIO_FUNCTIONS, convert, convert_or_load


class Converting:
    """The object in the forked process."""

    def __init__(self, argument: Mapping[str, Any], progress: Callable[[Mapping[str, Any]], None]) -> None:
        pass

    def take(self) -> dict[str, Any]:
        """Loads stored conversions, or makes and stores them."""
        assert not api._TRANSPILER._cache._cache
        converted = convert_or_load(SEQIO_FUNCTIONS)
        held = set(api._TRANSPILER._cache._cache)
        foreign = sum(f"_{os.getpid()}_" not in module for module in _generated())
        again = convert()
        data = tf.data.Dataset.from_tensors({"targets": tf.range(5)})
        data = seqio.utils.trim_and_pad_dataset(data, {"targets": 3})
        return {
            "converted": converted,
            "again": again,
            "held": len(held),
            "foreign": foreign,
            "padded": next(data.as_numpy_iterator())["targets"].tolist(),
            "new": sorted(
                code.co_name for code in set(api._TRANSPILER._cache._cache) - held if "/seqio/" in code.co_filename
            ),
            "files": os.listdir(os.environ["TMPDIR"]),
        }


def _generated() -> list[str]:
    return [name for name in sys.modules if name.startswith("__autograph_generated_")]
