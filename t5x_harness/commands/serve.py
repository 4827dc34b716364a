"""``t5x-harness serve``: runs an emulated Google Cloud for a shell until it is stopped."""

import argparse
import asyncio
import contextlib
import shlex
import sys
from pathlib import Path

from t5x_harness.commands.arguments import FOUND, UsageError
from t5x_harness.commands.shells import (
    add_env_file_argument,
    add_google_arguments,
    announce,
    env_file_of,
    export_lines,
    options_of,
    project_of,
    root_of,
)
from t5x_harness.findings.printable import printable
from t5x_harness.google.environment import google_environment
from t5x_harness.google.server.launch import require_extra
from t5x_harness.google.server.settings import Endpoints, ServerError, ServerSettings, SessionFolder
from t5x_harness.settings.project import ProjectError

EPILOG = """\
examples:
  t5x-harness serve --root=cloud --env-file=google.env &
  . ./google.env                                  once the file is there: this shell's clients use it
  t5x-harness exec --slice=none -- ls /gcs/bucket in that shell: a command that sees the buckets at /gcs, too
  t5x-harness serve                               prints the lines to paste into another shell
  t5x-harness serve --port=9000 --proxy-port=9001 the same addresses every time

Clients need no change: TensorFlow, tensorstore, orbax, gcsfs, google-cloud-storage, gcloud and gsutil follow the
variables. The proxy answers for Google's hosts itself and refuses every other one; what it refuses is printed here.

exit status: 0 ended by Ctrl-C, SIGTERM or SIGHUP, 1 it could not start, 2 wrong usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``serve`` to a parser."""
    parser.add_argument(
        "--root",
        metavar="DIR",
        help="folder that keeps the buckets, made if it is not there: gs://bucket/name is DIR/buckets/bucket/name "
        "(default: a temporary one, removed at the end)",
    )
    add_env_file_argument(parser)
    parser.add_argument(
        "--port", type=_port, default=0, metavar="PORT", help="port of Cloud Storage over HTTP (default: any free one)"
    )
    parser.add_argument(
        "--proxy-port", type=_port, default=0, metavar="PORT", help="port of the proxy (default: any free one)"
    )
    parser.add_argument(
        "--create-buckets",
        action="store_true",
        help="make buckets that are not there when they are first used; without it they are 404, as in Google's cloud",
    )
    add_google_arguments(parser, with_standins="jobs", shrunk="jobs and on TPU VMs")


def main(args: argparse.Namespace) -> int:
    """Runs the server until SIGINT, SIGTERM or SIGHUP.

    Returns:
      0 if the server was stopped, 1 if it could not start.

    Raises:
      UsageError: the folder or the file cannot be written, or pyproject.toml has a mistake in it.
    """
    root = root_of(args.root, "--root")
    try:
        project = project_of(args)
    except ProjectError as error:
        raise UsageError(str(error)) from None
    env_file = env_file_of(args)
    try:
        require_extra()
        from t5x_harness.google.server.process import serve
        from t5x_harness.vertex.cloud import with_programs_of_t5x

        with contextlib.ExitStack() as stack:
            asyncio.run(
                serve(
                    ServerSettings(
                        root,
                        args.port,
                        args.proxy_port,
                        create_buckets=args.create_buckets,
                        vertex=with_programs_of_t5x(options_of(args, project, shrink=args.shrink)),
                    ),
                    lambda endpoints: _announce(endpoints, root, env_file, stack),
                )
            )
    except ServerError as error:
        print(printable(f"t5x-harness serve: {error}"), file=sys.stderr)
        return FOUND
    return 0


def _announce(endpoints: Endpoints, root: Path | None, env_file: Path | None, stack: contextlib.ExitStack) -> None:
    programs = shlex.quote(str(SessionFolder(endpoints.folder).programs))
    # This line puts the folder at the front of PATH only once, even if a shell reads it several times.
    path = f'case ":$PATH:" in *:{programs}:*) ;; *) export PATH={programs}:"$PATH" ;; esac\n'
    lines = export_lines(google_environment(endpoints)) + path
    where = root or f"{endpoints.root}, which is removed at the end (keep it with --root DIR)"
    print(f"serving gs:// from {where}; Ctrl-C ends it", file=sys.stderr, flush=True)
    stack.enter_context(announce(lines, env_file))
    if endpoints.state != "memory:":
        print(f"the state of Vertex AI is at {endpoints.state}", file=sys.stderr, flush=True)
    # A running shell cannot get a mount, but a command that starts can.
    print("for paths below /gcs, there: t5x-harness exec --slice=none -- COMMAND", file=sys.stderr, flush=True)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 16:
        raise argparse.ArgumentTypeError(f"a port is a number from 1 to 65535, not {text!r}")
    return int(text)
