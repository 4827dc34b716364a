"""``t5x-harness warm``: keeps the stack imported for sessions in this machine's shells, until it is stopped."""

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from t5x_harness.commands.arguments import FOUND, UsageError
from t5x_harness.commands.shells import add_env_file_argument, announce, env_file_of, export_lines
from t5x_harness.settings.command_line import add_option
from t5x_harness.settings.forms import SettingsError
from t5x_harness.settings.project import find_project
from t5x_harness.spec import RuntimeChoice
from t5x_harness.variables import WORKER_SOCKET_VARIABLE

EPILOG = """\
examples:
  t5x-harness warm --env-file=warm.env &
  . ./warm.env                                    once the file is there
  pytest -m smoke configs/finetune.gin            does not wait for imports any more; nor does t5x-harness run
  t5x-harness warm --stop                         ends it, and what earlier calls have left

Runs are forked from it only where its imports are what theirs would have been: the same Python, T5X and
t5x-harness, the same variables that libraries read, and no imported file changed. Else they import by themselves,
and say why; when a file has changed, it imports again for the sessions that come then. Your own tasks and modules
are never kept: each run imports them anew.

exit status: 0 ended by Ctrl-C, SIGTERM or SIGHUP, 1 it could not start, or died, 2 wrong usage
"""

_LOOK_SECONDS = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``warm`` to a parser."""
    add_option(parser, "runtime")
    add_env_file_argument(parser)
    parser.add_argument(
        "--stop",
        action="store_true",
        help="end what keeps imports instead: the workers that earlier calls have left, as soon as no call uses them, "
        "and the warm of this shell",
    )


def main(args: argparse.Namespace) -> int:
    """Keeps a worker until SIGINT, SIGTERM or SIGHUP.

    Returns:
      0 if the worker was stopped, 1 if the imports failed or the worker died.

    Raises:
      UsageError: there is no such T5X, or the folder for the file does not exist.
    """
    from t5x_harness.runs.pool import worker_for
    from t5x_harness.runtime.choice import RuntimeChoiceError, find_runtime, folders_of
    from t5x_harness.workers.errors import ZygoteFailed
    from t5x_harness.workers.warm_zygotes import WarmZygotes

    if args.stop:
        return _stop()
    env_file = env_file_of(args)
    try:
        runtime = find_runtime(
            args.runtime or RuntimeChoice.AUTO, folders_of(".", find_project(Path.cwd()).python_path)
        )
    except (RuntimeChoiceError, SettingsError) as error:
        raise UsageError(str(error)) from None
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, signal.default_int_handler)
    # A private folder, because anyone who reaches the socket can run anything as this user.
    with contextlib.suppress(KeyboardInterrupt), tempfile.TemporaryDirectory(prefix="t5x-harness-warm-") as folder:
        _say(f"importing {runtime}")
        with WarmZygotes(Path(folder), lambda path: worker_for(runtime, socket_path=path)) as kept:
            try:
                kept.renew()
            except ZygoteFailed as error:
                _say(f"t5x-harness warm: {error}\n{error.log_tail or ''}".rstrip())
                return FOUND
            _say(f"process {os.getpid()} keeps it; Ctrl-C or kill {os.getpid()} ends it")
            with announce(export_lines({WORKER_SOCKET_VARIABLE: str(kept.socket_path)}), env_file):
                while not kept.has_ended:
                    if changed := kept.take_changed_file():
                        _say(f"{changed} changed: importing again")
                        try:
                            kept.renew()
                        except ZygoteFailed as error:  # perhaps a file was only half written
                            _say(f"t5x-harness warm: {error}\nThe next session has it tried again")
                    time.sleep(_LOOK_SECONDS)
        _say("t5x-harness warm: the process with the imports was killed; start it again")
        return FOUND
    return 0


def _stop() -> int:
    """Ends every worker that is kept for this user and shell, and says which."""
    from t5x_harness.workers.hosts import WarmHost
    from t5x_harness.workers.keeping import all_places

    pids = [pid for place in all_places() for pid in place.stop()]
    with contextlib.suppress(OSError, KeyError):
        host = WarmHost(Path(os.environ[WORKER_SOCKET_VARIABLE]))
        host.stop(patient=False)
        os.kill(host.pid, signal.SIGTERM)
        pids.append(host.pid)
    for pid in pids:
        _say(f"process {pid} ends as soon as no session uses it")
    if not pids:
        _say("no process keeps imports")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
