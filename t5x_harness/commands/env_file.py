"""Variables for shells: printed as ``export`` lines, or written to a file for as long as they are valid."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from t5x_harness.commands.arguments import UsageError


def export_lines(variables: Mapping[str, str]) -> str:
    """Returns ``export NAME=value`` lines for a shell, sorted by name."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items()))


def add_env_file_argument(parser: argparse.ArgumentParser) -> None:
    """Adds ``--env-file`` to a parser."""
    parser.add_argument(
        "--env-file",
        metavar="FILE",
        help="write the export lines to FILE instead, at once when everything is ready; removed at the end",
    )


def env_file_of(args: argparse.Namespace) -> Path | None:
    """Returns the file of ``--env-file``; None to print the lines.

    Raises:
      UsageError: its folder is not there.
    """
    env_file = Path(args.env_file).absolute() if args.env_file else None
    if env_file is not None and not env_file.parent.is_dir():
        raise UsageError(f"--env-file {args.env_file}: there is no folder {env_file.parent}")
    return env_file


@contextlib.contextmanager
def announce(lines: str, env_file: Path | None) -> Iterator[None]:
    """Prints the lines, or keeps them in a file while the block lasts.

    Args:
      lines: of :func:`export_lines`.
      env_file: the file, which is there as a whole or not at all; None to print them.
    """
    if env_file is None:
        print(lines, end="", flush=True)
        yield
        return
    draft = env_file.with_name(f".{env_file.name}.{os.getpid()}")
    draft.write_text(lines, encoding="utf-8")
    os.replace(draft, env_file)
    print(f"in another shell: . {env_file}", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # somebody else's by now, or gone
            if env_file.read_text(encoding="utf-8") == lines:
                env_file.unlink()
