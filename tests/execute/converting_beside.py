"""Takes conversions over from the process beside, and says what it holds then and what a pipeline makes of it."""

from __future__ import annotations

import json
import os
import signal
import sys

import seqio
import tensorflow as tf
from tensorflow.python.autograph.impl import api

from t5x_harness.execute.conversions import SEQIO_FUNCTIONS, convert
from t5x_harness.execute.conversions_beside import ConversionsBeside


def main(how: str) -> None:
    beside = ConversionsBeside(SEQIO_FUNCTIONS)
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
    print(
        json.dumps(
            {
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
        )
    )


def _generated() -> list[str]:
    return [name for name in sys.modules if name.startswith("__autograph_generated_")]


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1])
