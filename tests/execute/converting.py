"""Takes conversions over from the process beside, and says what it holds then and what a pipeline makes of it.

For a fork of a process that has imported SeqIO and converted nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

import seqio
import tensorflow as tf
from tensorflow.python.autograph.impl import api

from t5x_harness.upstream.autograph import SEQIO_FUNCTIONS, convert
from t5x_harness.upstream.autograph_sibling import SiblingConversions


class Converting:
    """The object in the forked process."""

    def __init__(self, argument: Mapping[str, Any], progress: Callable[[Mapping[str, Any]], None]) -> None:
        pass

    def take(self, how: str) -> dict[str, Any]:
        """Takes over at once, when the process beside has ended (``awaited``), or when it was ``killed``."""
        assert not api._TRANSPILER._cache._cache
        beside = SiblingConversions(SEQIO_FUNCTIONS)
        forked = beside.child is not None
        if forked and how == "killed":
            os.kill(beside.child, signal.SIGKILL)
        if forked and how == "awaited":
            os.waitid(os.P_PID, beside.child, os.WEXITED | os.WNOWAIT)
        converted = beside.take()
        held = set(api._TRANSPILER._cache._cache)
        foreign = sum(f"_{os.getpid()}_" not in module for module in _generated())
        again = convert()
        data = tf.data.Dataset.from_tensors({"targets": tf.range(5)})
        data = seqio.utils.trim_and_pad_dataset(data, {"targets": 3})
        return {
            "forked": forked,
            "converted": converted,
            "again": again,
            "held": len(held),
            "foreign": foreign,
            "padded": next(data.as_numpy_iterator())["targets"].tolist(),
            "new": sorted(
                code.co_name for code in set(api._TRANSPILER._cache._cache) - held if "/seqio/" in code.co_filename
            ),
            "children": _has_children(),
            "files": os.listdir(os.environ["TMPDIR"]),
        }


def _generated() -> list[str]:
    return [name for name in sys.modules if name.startswith("__autograph_generated_")]


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True
