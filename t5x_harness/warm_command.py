"""``t5x-harness warm``: keeps the stack imported for the sessions of this machine's shells, until it is ended."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
import time
from pathlib import Path

from t5x_harness.arguments import UsageError, add_runtime_argument
from t5x_harness.shell_lines import add_env_file_argument, announce, env_file_of, export_lines

__all__ = ["add_arguments", "run"]

_FAILED = 1
_LOOK_SECONDS = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``warm`` to a parser."""
    add_runtime_argument(parser)
    add_env_file_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Keeps a worker until SIGINT, SIGTERM or SIGHUP.

    Returns:
      0 when it was ended, 1 when the imports failed, or the worker died.

    Raises:
      UsageError: there is no such T5X, or no folder for the file.
    """
    from t5x_harness.pipeline import worker_for
    from t5x_harness.t5x_runtime import RuntimeChoiceError, find_runtime
    from t5x_harness.workers import KEPT_VARIABLE, ZygoteFailed

    env_file = env_file_of(args)
    try:
        runtime = find_runtime(args.t5x_runtime)
    except RuntimeChoiceError as error:
        raise UsageError(str(error)) from None
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    # A folder of the user's alone: who reaches the socket can run anything as this user.
    with contextlib.suppress(KeyboardInterrupt), tempfile.TemporaryDirectory(prefix="t5x-harness-warm-") as folder:
        door = Path(folder) / "door"
        print(f"importing {runtime}", file=sys.stderr, flush=True)
        with worker_for(runtime, door=door) as worker:
            try:
                worker.await_ready()
            except ZygoteFailed as error:
                print(f"t5x-harness warm: {error}\n{error.log_tail or ''}".rstrip(), file=sys.stderr)
                return _FAILED
            print(f"process {worker.pid} has it; Ctrl-C ends it", file=sys.stderr, flush=True)
            with announce(export_lines({KEPT_VARIABLE: str(door)}), env_file):
                while not worker.has_ended:
                    time.sleep(_LOOK_SECONDS)
        print("t5x-harness warm: the process has died; start it again", file=sys.stderr)
        return _FAILED
    return 0
