"""The options of commands that start a private Google, as far as they are for its Vertex AI."""

from __future__ import annotations

import argparse

from t5x_harness.google.vertex.settings import VertexOptions

__all__ = ["add_vertex_arguments", "options_of"]


def add_vertex_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds ``--vertex-state`` and ``--vertex-image`` to a parser."""
    parser.add_argument(
        "--vertex-state",
        metavar="URL",
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


def options_of(args: argparse.Namespace) -> VertexOptions:
    """What was chosen."""
    return VertexOptions(state=args.vertex_state or "memory:", images=dict(args.vertex_image))


def _image(text: str) -> tuple[str, str]:
    glob, separator, command = text.partition("=")
    if not glob or not separator:
        raise argparse.ArgumentTypeError(f"a glob and a command with = between them, not {text!r}")
    return glob, command
