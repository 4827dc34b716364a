"""``t5x-harness serve``: a private Google for a shell, until it is ended."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from t5x_harness.arguments import UsageError
from t5x_harness.google.environment import export_lines, google_environment
from t5x_harness.google.serving.endpoints import Endpoints
from t5x_harness.google.serving.launch import require_extra
from t5x_harness.google.serving.settings import ServerError, Settings
from t5x_harness.vertex_arguments import add_vertex_arguments, options_of

__all__ = ["add_arguments", "run"]

_FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``serve`` to a parser."""
    parser.add_argument(
        "--root",
        metavar="DIR",
        help="folder that keeps the buckets, made if it is not there: gs://bucket/name is DIR/buckets/bucket/name "
        "(default: a temporary one, removed at the end)",
    )
    parser.add_argument(
        "--env-file",
        metavar="FILE",
        help="write the export lines to FILE instead, at once when everything is ready; removed at the end",
    )
    parser.add_argument(
        "--port", type=_port, default=0, metavar="PORT", help="port of Cloud Storage over HTTP (default: any free one)"
    )
    parser.add_argument(
        "--proxy-port", type=_port, default=0, metavar="PORT", help="port of the proxy (default: any free one)"
    )
    add_vertex_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Serves until SIGINT, SIGTERM or SIGHUP.

    Returns:
      0 when it was ended, 1 when it could not start.

    Raises:
      UsageError: the folder or the file cannot be written.
    """
    root = Path(args.root).absolute() if args.root else None
    if root is not None and root.exists() and not root.is_dir():
        raise UsageError(f"--root {args.root} is no folder")
    env_file = Path(args.env_file).absolute() if args.env_file else None
    if env_file is not None and not env_file.parent.is_dir():
        raise UsageError(f"--env-file {args.env_file}: there is no folder {env_file.parent}")
    try:
        require_extra()
        from t5x_harness.google.serving.server import serve

        with contextlib.ExitStack() as stack:
            asyncio.run(
                serve(
                    Settings(root, args.port, args.proxy_port, vertex=options_of(args)),
                    lambda endpoints: _announce(endpoints, root, env_file, stack),
                )
            )
    except ServerError as error:
        print(f"t5x-harness serve: {error}", file=sys.stderr)
        return _FAILED
    return 0


def _announce(endpoints: Endpoints, root: Path | None, env_file: Path | None, stack: contextlib.ExitStack) -> None:
    lines = export_lines(google_environment(endpoints))
    where = root or f"{endpoints.root}, which is removed at the end (keep it with --root DIR)"
    print(f"serving gs:// from {where}; Ctrl-C ends it", file=sys.stderr, flush=True)
    if env_file is None:
        print(lines, end="", flush=True)
    else:
        stack.enter_context(_written(env_file, lines))
        print(f"in another shell: . {env_file}", file=sys.stderr, flush=True)
    if endpoints.state != "memory:":
        print(f"the state of Vertex AI is at {endpoints.state}", file=sys.stderr, flush=True)
    # A shell that runs cannot be given a mount, a command that begins can.
    print("for paths below /gcs, there: t5x-harness exec --slice=none -- COMMAND", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _written(path: Path, text: str) -> Iterator[None]:
    """A file that is there as a whole or not at all, while the block lasts."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # somebody else's by now, or gone
            if path.read_text(encoding="utf-8") == text:
                path.unlink()


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 16:
        raise argparse.ArgumentTypeError(f"a port is a number from 1 to 65535, not {text!r}")
    return int(text)
