"""Makes this process see a store at ``/gcs``."""

import enum
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from t5x_harness.google.gcs_mount.namespace import GCS, NamespaceRefused, buckets_folder, enter_namespace
from t5x_harness.google.product import PRODUCT
from t5x_harness.variables import PATCH_VARIABLE

# The same as those of a shell and env(1); 125 is for a failure before the command.
_REFUSED, _NOT_EXECUTABLE, _NOT_FOUND = 125, 126, 127


class MountMode(enum.StrEnum):
    """The kind of ``/gcs``: the store's folder itself, or a file system that behaves like Cloud Storage FUSE."""

    FOLDER = "folder"
    FUSE = "fuse"


def enter(root: str | os.PathLike[str], mode: MountMode | str = MountMode.FOLDER) -> None:
    """Makes this process, and all that it starts from now on, see the store at ``/gcs`` permanently.

    The process must have a single thread, as after a fork: the kernel refuses any other a user namespace. If the
    machine allows no namespace, Python is patched; see :func:`patch`. The folder ``buckets`` is made if needed.

    Raises:
      NamespaceRefused: the mode needs a namespace, and this process gets none.
    """
    if MountMode(mode) is MountMode.FOLDER and is_mounted(root):
        return
    try:
        mount_namespace(root, mode)
    except NamespaceRefused as refused:
        if MountMode(mode) is MountMode.FUSE:
            raise NamespaceRefused(
                f"/gcs cannot be as Cloud Storage FUSE here: {refused}; see {PRODUCT} doctor, or choose --gcs=folder"
            ) from None
        from t5x_harness.google.gcs_mount.patching import patch

        patch(root)
        os.environ[PATCH_VARIABLE] = os.path.abspath(root)  # for the Python processes that this one starts


def is_mounted(root: str | os.PathLike[str]) -> bool:
    """Tells whether ``/gcs`` is already this store's folder, as in a container or a child of a run."""
    folder = buckets_folder(root)
    return os.path.isdir(GCS) and os.path.isdir(folder) and os.path.samefile(GCS, folder)


def mount_namespace(root: str | os.PathLike[str], mode: MountMode | str) -> None:
    """Enters a namespace with the store at ``/gcs``; raises NamespaceRefused if this process gets none."""
    folder = buckets_folder(root)
    os.makedirs(folder, exist_ok=True)
    if MountMode(mode) is MountMode.FOLDER:
        enter_namespace(folder)
        return
    from t5x_harness.google.gcs_mount.server import start_server

    with start_server(root) as mount_at:
        enter_namespace(folder, mount_at)


def main(arguments: Sequence[str]) -> NoReturn:
    """Mounts the store and becomes the command; the words of ``command_prefix`` call this.

    Args:
      arguments: the mode, the root of the store, and the words of the command.
    """
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
