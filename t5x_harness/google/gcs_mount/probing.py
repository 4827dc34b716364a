"""How ``/gcs`` is had on this machine, found out by doing it; and commands that see it."""

from __future__ import annotations

import dataclasses
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from t5x_harness.google.gcs_mount.mount import MountMode, Way, is_mounted
from t5x_harness.google.gcs_mount.namespace import GCS, NamespaceRefused
from t5x_harness.google.gcs_mount.rewriting import buckets_folder, rewrite
from t5x_harness.google.product import PACKAGE, PRODUCT
from t5x_harness.variables import PATCH_VARIABLE

# A process that mounts and ends at once; a machine that swaps may take a while for it.
_PROBE_SECONDS = 30.0

# Does not depend on the import path or the environment of the command, and takes as little time as Python can.
_BOOT = (
    "import sys; sys.path.append({parent!r}); from {package}.google.gcs_mount.launch import main; main(sys.argv[1:])"
)


@dataclasses.dataclass(frozen=True)
class Mount:
    """What this machine allows.

    Attributes:
      way: the best way that works.
      refused: why there is no namespace; None where there is.
      fuse_refused: why :attr:`Mode.FUSE` is not available; None where it is.
    """

    way: Way
    refused: str | None = None
    fuse_refused: str | None = None

    @property
    def modes(self) -> tuple[MountMode, ...]:
        """The modes that can be had here."""
        return (MountMode.FOLDER,) if self.fuse_refused is not None else (MountMode.FOLDER, MountMode.FUSE)


def probe(root: str | os.PathLike[str] | None = None) -> Mount:
    """Finds out what works here by doing it in a process of its own; the answer is kept for this process.

    Args:
      root: of the store; a ``/gcs`` that is this store's folder already is used as it is.
    """
    refused = refusal(MountMode.FOLDER)
    way = Way.REWRITING if refused else Way.NAMESPACE
    if root is not None and is_mounted(root):
        way = Way.EXISTING
    return Mount(way, refused, refused or refusal(MountMode.FUSE))


@functools.cache
def refusal(mode: MountMode) -> str | None:
    """Returns why a mode cannot be mounted here, found out by doing it once a process; None where it can."""
    with tempfile.TemporaryDirectory(prefix="gcs-probe-") as root:
        Path(root, "buckets", "probe-bucket").mkdir(parents=True)
        Path(root, "buckets", "probe-bucket", "object").write_text("found")
        return _try(root, mode)


def _try(root: str, mode: MountMode) -> str | None:
    """Returns what refuses a mode; None if an object was read through it."""
    words = [*command_prefix(root, mode), "cat", f"{GCS}/probe-bucket/object"]
    try:
        done = subprocess.run(
            words, cwd="/", check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL,
            timeout=_PROBE_SECONDS, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"mounting took longer than {_PROBE_SECONDS:g} s"
    if done.returncode == 0 and done.stdout == "found":
        return None
    lines = done.stderr.strip().splitlines()
    return lines[-1].removeprefix(f"{PRODUCT}: /gcs: ") if lines else f"the probe exited with {done.returncode}"


def command_prefix(root: str | os.PathLike[str], mode: MountMode | str = MountMode.FOLDER) -> list[str]:
    """Words in front of a command that then sees the store at ``/gcs``, with everything that it starts.

    The command takes the place of the process that was started, so that signals, its status and its output are its own.
    Nothing checks here whether the machine allows it: see :func:`probe`, or :func:`launched`, which does.

    Args:
      root: of the store; its folder ``buckets`` is made if need be.
    """
    os.makedirs(buckets_folder(root), exist_ok=True)
    boot = _BOOT.format(package=PACKAGE, parent=str(Path(__file__).resolve().parents[3]))
    return [sys.executable, "-I", "-S", "-c", boot, MountMode(mode).value, os.path.abspath(root)]


def launched(
    command: Sequence[str],
    environment: Mapping[str, str],
    root: str | os.PathLike[str],
    mode: MountMode | str = MountMode.FOLDER,
) -> tuple[list[str], dict[str, str]]:
    """Returns a command and its environment such that it sees the store at ``/gcs``, as far as this machine allows.

    Where it does not, paths in the command's words and in the variables are rewritten, and Python processes are patched
    as they start: see the module ``patching``.

    Raises:
      NamespaceRefused: the mode needs a namespace, and this machine refuses it.
    """
    mode = MountMode(mode)
    if mode is MountMode.FOLDER and is_mounted(root):
        return list(command), dict(environment)
    refused = refusal(mode)
    if refused is None:
        return [*command_prefix(root, mode), *command], dict(environment)
    if mode is MountMode.FUSE:
        raise NamespaceRefused(refused)
    environment = {name: rewrite(value, root) for name, value in environment.items()}
    return [rewrite(word, root) for word in command], _patching(environment, root)


def _patching(environment: Mapping[str, str], root: str | os.PathLike[str]) -> dict[str, str]:
    """Returns an environment whose Python processes have the harness's ``sitecustomize``, and are patched by it."""
    bootstrap = str(Path(__file__).parents[2] / "bootstrap")
    kept = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and path != bootstrap]
    python_path = os.pathsep.join([bootstrap, *kept])
    return {**environment, "PYTHONPATH": python_path, PATCH_VARIABLE: os.path.abspath(root)}
