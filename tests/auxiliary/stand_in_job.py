"""Replaces a job in tests, without JAX: records its arguments, and ends as the file ``how`` next to its record says.

``how`` contains ``wait`` (until it changes), ``fail``, ``die`` (once, with all its processes), ``out of memory``
(once, alone) or nothing.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

CALLS = Path(os.environ["STAND_IN_CALLS"])


def main(arguments: list[str]) -> int:
    flags = [argument.removeprefix("--").split("=", 1) for argument in arguments]
    bound = {name.removeprefix("gin."): value.strip("'\"") for name, value in flags if name.startswith("gin.")}
    checkpoint = Path(bound.get("CHECKPOINT_PATH") or bound["INITIAL_CHECKPOINT_PATH"])
    there = (checkpoint / "checkpoint").exists() or (checkpoint / "state").is_dir()
    notes = {**bound, "files": [value for name, value in flags if name == "gin_file"], "there": there}
    before = len(list(CALLS.glob("*.json")))
    written = CALLS / f"{before:03d}-{os.getpid()}.new"
    written.write_text(json.dumps(notes))
    written.rename(written.with_suffix(".json"))
    while _how() == "wait":
        time.sleep(0.02)
    if _how() == "die":
        (CALLS / "how").write_text("")
        os.killpg(0, signal.SIGKILL)
    if _how() == "out of memory":
        (CALLS / "how").write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return 3 if _how() == "fail" else 0


def _how() -> str:
    try:
        return (CALLS / "how").read_text()
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
