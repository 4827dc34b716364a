"""Runs a command that sees a store at ``/gcs``; what ``command_prefix`` of this package starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from t5x_harness.google.product import PRODUCT

# As in a shell and env(1); 125 for a failure before the command.
_REFUSED, _NOT_EXECUTABLE, _NOT_FOUND = 125, 126, 127


def main(arguments: Sequence[str]) -> NoReturn:
    """Mounts the store, and becomes the command.

    Args:
      arguments: the mode, the root of the store, and the words of the command.
    """
    from t5x_harness.google.gcs_mount.mount import mount_namespace
    from t5x_harness.google.gcs_mount.namespace import NamespaceRefused

    mode, root, *command = arguments
    try:
        mount_namespace(root, mode)
    except NamespaceRefused as error:
        _end(f"/gcs: {error}", _REFUSED)
    try:
        os.execvp(command[0], command)
    except (FileNotFoundError, NotADirectoryError):
        _end(f"{command[0]}: command not found", _NOT_FOUND)
    except OSError as error:
        _end(f"{command[0]}: cannot be run: {error.strerror or error}", _NOT_EXECUTABLE)


def _end(message: str, status: int) -> NoReturn:
    print(f"{PRODUCT}: {message}", file=sys.stderr)
    sys.exit(status)
