"""Finds out by trying how this machine can show ``/gcs``, and makes commands that see it."""

import functools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from t5x_harness.google.gcs_mount.mount import MountMode, is_mounted
from t5x_harness.google.gcs_mount.namespace import GCS, NamespaceRefused, buckets_folder
from t5x_harness.google.product import PACKAGE, PRODUCT
from t5x_harness.variables import PATCH_VARIABLE

# The time limit of a process that mounts and ends; a machine that swaps may need a while.
_PROBE_SECONDS = 30.0

# It is independent of the command's import path and environment, and as fast as Python can start.
_BOOT = "import sys; sys.path.append({parent!r}); from {package}.google.gcs_mount.mount import main; main(sys.argv[1:])"

# A path begins at the start of a word, or after quotes, = in options, : in lists of paths, or brackets. After anything
# else (/mnt/gcs, ~/gcs, {root}/gcs, gs://b/gcs) it is a part of a longer path.
_GCS = re.compile(r"""(?:(?<=file://)|(?<![^\s"'`=:,;|@<>(\[{]))/gcs(?=[/\s"'`:,;|<>)\]}]|$)""")


@functools.cache
def refusal(mode: MountMode) -> str | None:
    """Returns why a mode cannot be mounted here, or None if it can; tried once per process, in another one."""
    with tempfile.TemporaryDirectory(prefix="gcs-probe-") as root:
        Path(root, "buckets", "probe-bucket").mkdir(parents=True)
        Path(root, "buckets", "probe-bucket", "object").write_text("found")
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
    """Returns words to put before a command so that it, and all that it starts, sees the store at ``/gcs``.

    The command replaces the started process, so that signals, status and output are its own. Unlike :func:`launched`,
    this does not check whether the machine allows it. It makes the folder ``buckets``.
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
    """Returns a command and an environment, with which it sees the store at ``/gcs`` as far as this machine allows.

    Otherwise, paths in the command's words and in the variables are rewritten, and Python processes are patched when
    they start; see the module ``patching``.

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
    bootstrap = str(Path(__file__).parents[2] / "bootstrap")  # its sitecustomize patches Python processes
    kept = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and path != bootstrap]
    patching = {"PYTHONPATH": os.pathsep.join([bootstrap, *kept]), PATCH_VARIABLE: os.path.abspath(root)}
    return [rewrite(word, root) for word in command], {**environment, **patching}


def rewrite(text: str, root: str | os.PathLike[str]) -> str:
    """Replaces ``/gcs`` at the start of each path in a text with the folder of a store's buckets."""
    folder = buckets_folder(root)
    return _GCS.sub(lambda _: folder, text)
