"""Parts that commands for other shells share: variables for these shells, and options of an emulated Google Cloud."""

import argparse
import contextlib
import math
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from t5x_harness.buckets.emulated import misplaced_buckets
from t5x_harness.commands.arguments import UsageError, note
from t5x_harness.execute import program_setup
from t5x_harness.google.vertex.faults import VertexFault
from t5x_harness.google.vertex.settings import VertexOptions
from t5x_harness.settings.project import find_project
from t5x_harness.spec import StandInPolicy
from t5x_harness.system.field_types import LARGEST


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
      UsageError: the file's folder does not exist, or it is a folder itself.
    """
    env_file = Path(args.env_file).absolute() if args.env_file else None
    if env_file is not None and not env_file.parent.is_dir():
        raise UsageError(f"--env-file {args.env_file}: there is no folder {env_file.parent}")
    if env_file is not None and env_file.is_dir():
        raise UsageError(f"--env-file {args.env_file} is a folder: name a file in it")
    return env_file


@contextlib.contextmanager
def announce(lines: str, env_file: Path | None) -> Iterator[None]:
    """Prints the lines, or keeps them in a file during the block.

    Args:
      lines: the result of :func:`export_lines`.
      env_file: the file, which is either complete or absent; None to print the lines.
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
        with contextlib.suppress(OSError):  # the file may belong to somebody else by now, or be gone
            if env_file.read_text(encoding="utf-8") == lines:
                env_file.unlink()


def add_google_arguments(parser: argparse.ArgumentParser, *, with_standins: str, shrunk: str) -> None:
    """Adds the options of the emulated Vertex AI, ``--standins`` and ``--shrink`` to a parser of ``exec`` or ``serve``.

    Args:
      parser: the parser of the command.
      with_standins: the users of missing data that may be replaced, for the help text.
      shrunk: the places in which T5X may run small, for the help text.
    """
    parser.add_argument(
        "--vertex-state",
        metavar="URL",
        type=_state,
        help="where the emulated Vertex AI keeps its resources: memory:, fakeredis: for a Redis of its own that other "
        "processes reach, or redis://HOST:PORT/DB (default: memory:)",
    )
    parser.add_argument(
        "--vertex-image",
        metavar="GLOB=COMMAND",
        type=_image,
        action="append",
        default=[],
        help="the command that stands for the container images that a glob fits, in the emulated Vertex AI's jobs: "
        "'*/trainer*=python -m trainer.task'; nothing behind the = for one whose jobs have a command (may be repeated; "
        "T5X's images and Google's own for training are known)",
    )
    for state, default, others in (
        ("queued", VertexOptions.queued_seconds, "queued resources of Cloud TPU wait"),
        ("pending", VertexOptions.pending_seconds, "TPU VMs are CREATING"),
    ):
        parser.add_argument(
            f"--vertex-{state}",
            metavar="SECONDS",
            type=_seconds,
            default=default,
            help=f"how long jobs of the emulated Vertex AI are JOB_STATE_{state.upper()}, and {others}, which on the "
            f"service is minutes (default: {default:g})",
        )
    parser.add_argument(
        "--vertex-fault",
        metavar="FAULT",
        type=_fault,
        action="append",
        default=[],
        help="what goes wrong in the emulated Vertex AI: KIND[:GLOB][,NAME=VALUE]…, such as 'stockout', "
        "'preempt:train*,output=step 100', 'oom:*,seconds=5' or 'fail:JobService.Create*,code=UNAVAILABLE,times=2'; "
        "preempt, stockout, oom, exceed_hbm, internal and expire are for jobs by display name, fail and stall for "
        "methods (may be repeated; times is 1 by default, all for always)",
    )

    parser.add_argument(
        "--standins",
        choices=(StandInPolicy.MISSING.value, StandInPolicy.OFF.value),
        default=StandInPolicy.OFF.value,
        help=f"whether {with_standins} that read a vocabulary, TFDS data or a checkpoint in a bucket that is not "
        "there, or a Hugging Face dataset out of reach with rows in [tool.t5x_harness.samples], get a stand-in, with a "
        "line on standard error for each (default: off)",
    )

    parser.add_argument(
        "--shrink",
        action="store_true",
        help=f"have T5X's train, eval and infer in {shrunk} run small, as t5x-harness run does: few layers, steps and "
        "examples, small widths, lengths and batches, the same mesh and structure; each change is a line on standard "
        "error (default: at the sizes that the config names)",
    )


def root_of(text: str | None, option: str) -> Path | None:
    """Returns the folder that keeps the buckets, and warns about unused folders in it that look like buckets.

    Raises:
      UsageError: it is a file.
    """
    if not text:
        return None
    root = Path(text).absolute()
    if root.exists() and not root.is_dir():
        raise UsageError(f"{option} {text} is not a folder")
    if said := misplaced_buckets(root):
        note(f"{option}: {said}")
    return root


def project_of(args: argparse.Namespace) -> str:
    """Returns the folder of the project whose processes get stand-ins; empty if none do.

    Raises:
      ProjectError: the project's pyproject.toml has a mistake in it.
    """
    return str(find_project(Path.cwd()).root) if args.standins == StandInPolicy.MISSING else ""


def options_of(args: argparse.Namespace, project: str = "", *, shrink: bool = False) -> VertexOptions:
    """Returns the options of Vertex AI, with the project whose jobs get stand-ins and whether jobs are shrunk."""
    return VertexOptions(
        state=args.vertex_state or VertexOptions.state,
        images=dict(args.vertex_image),
        queued_seconds=args.vertex_queued,
        pending_seconds=args.vertex_pending,
        faults=tuple(args.vertex_fault),
        job_environment=program_setup.variables(project, shrink=shrink) if project or shrink else {},
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LARGEST:
        raise argparse.ArgumentTypeError(f"a number of seconds from 0 to {LARGEST}, not {text!r}")
    return seconds


def _state(text: str) -> str:
    if text not in ("", "memory:", "fakeredis:") and not text.startswith(("redis://", "rediss://", "unix://")):
        raise argparse.ArgumentTypeError(f"memory:, fakeredis: or redis://HOST:PORT/DB, not {text!r}")
    return text


def _fault(text: str) -> VertexFault:
    try:
        return VertexFault.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def _image(text: str) -> tuple[str, str]:
    glob, separator, command = text.partition("=")
    if not glob or not separator:
        raise argparse.ArgumentTypeError(f"a glob and a command with = between them, not {text!r}")
    return glob, command
