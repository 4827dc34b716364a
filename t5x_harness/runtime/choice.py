"""Chooses which T5X runs, an installed one or the embedded one, and the environment in which programs find it.

Nothing here imports T5X: a runtime is found through the import system and described from the files on disk.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from t5x_harness.runtime import import_hooks
from t5x_harness.spec import RunSpec, RuntimeChoice
from t5x_harness.variables import RUNTIME_FOLDER_VARIABLE, RUNTIME_VARIABLE, SLICE_VARIABLE
from t5x_harness.version import __version__

if TYPE_CHECKING:
    import importlib.metadata

    from t5x_harness.slices.pod import Pod
    from t5x_harness.slices.slice import Slice

_INSTALL = "python -m pip install 't5x @ git+https://github.com/google-research/t5x'"
_UNKNOWN = "unknown version"
_PROGRAMS = os.path.join(import_hooks.BOOTSTRAP_PATH, "programs")


class RuntimeChoiceError(RuntimeError):
    """The requested T5X cannot be used; the message names the places that were searched, and the fix."""


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A T5X.

    Attributes:
      kind: ``installed`` or ``embedded``.
      version: the version in the distribution's metadata, with the git commit if readable. T5X's own version number has
        always been 0.0.0, so only the commit distinguishes two versions.
      location: the folder of the package ``t5x``.
      how: how it was found, in words.
      lacks_others: whether it is used only because no T5X is installed.
    """

    kind: Literal["installed", "embedded"]
    version: str
    location: str
    how: str
    lacks_others: bool = False

    @property
    def note(self) -> str:
        """How it was found, and the distributions that have the name of T5X and do not contain it."""
        return f"{self.how}{_passed_over(_placeholders())}" if self.lacks_others else self.how

    def __str__(self) -> str:
        return f"{self.kind} T5X {self.version} ({self.note})"


def runtime_of(spec: RunSpec) -> Runtime:
    """Returns the T5X of a run: the one that ``python -m t5x.train`` would import in its folder, even from a checkout.

    Args:
      spec: the run, which has its choice of a runtime, its folder, and the folders at the start of its import path.

    Raises:
      RuntimeChoiceError: ``installed`` was requested and no T5X is installed.
    """
    return find_runtime(spec.runtime, folders_of(spec.cwd, spec.python_path))


def folders_of(cwd: str | os.PathLike[str] = ".", python_path: Sequence[str] = ()) -> tuple[str, ...]:
    """Returns the folders at the start of a run's import path: the run's own, then its working folder."""
    here = os.path.abspath(cwd)
    return (*(os.path.join(here, folder) for folder in python_path), here)


def find_runtime(preference: str = RuntimeChoice.AUTO, folders: Sequence[str] = ()) -> Runtime:
    """Returns the T5X that ``import t5x`` will find, without importing it.

    Args:
      preference: ``auto`` prefers an installed T5X to the embedded one.
      folders: folders that will be at the start of the import path and are not there yet.

    Raises:
      RuntimeChoiceError: ``installed`` was requested and no T5X is installed.
      ValueError: there is no such preference.
    """
    if preference not in list(RuntimeChoice):
        raise ValueError(f"T5X runtime {preference!r} is none of auto, installed, embedded")
    if preference == "embedded":
        return _embedded("as asked for")
    looked_at: list[str] = []
    imported = sys.modules.get("t5x")
    if imported is not None and imported.__spec__ is not None:
        found = _installed(imported.__spec__, "imported already")
        if found:
            return found
    for finder, spec in import_hooks.installed_specs(folders):
        if not import_hooks.holds_t5x(spec):
            looked_at.append(f"{_folder(spec)} (no T5X: it has no module partitioning)")
        elif found := _installed(spec, _how(finder, spec)):
            if imported is None:
                return found
            looked_at.append(f"{found.location} (the embedded T5X was imported before)")
    if preference == "auto":
        return _embedded(f"no T5X is installed{_passed_over(looked_at)}", lacks_others=True)
    places = ", ".join(p or os.curdir for p in (*folders, *sys.path))
    raise RuntimeChoiceError(
        "no installed T5X was found: looked for a package t5x on the import path"
        f" ({places}) and through the finders of editable installs"
        + _passed_over([*looked_at, *_placeholders()])
        + f". Install it ({_INSTALL}), put a checkout on PYTHONPATH, or choose the embedded runtime"
    )


def shadow_of_t5x(folders: Sequence[str] = ()) -> str:
    """Returns the module or package that Python mistakes for T5X because of its name; empty if there is none.

    Runs skip it, but ``python -m t5x.train`` does not, and fails.

    Args:
      folders: as for :func:`find_runtime`.
    """
    for _, spec in import_hooks.installed_specs(folders):
        if import_hooks.holds_t5x(spec):
            break
        if spec.origin is not None:  # Python itself skips a folder without __init__.py
            return _folder(spec)
    return ""


def activate(runtime: Runtime) -> None:
    """Makes ``import t5x`` find this runtime in this process, regardless of the import path.

    Raises:
      RuntimeChoiceError: another T5X has already been imported.
    """
    imported = sys.modules.get("t5x")
    if imported is not None and imported.__spec__ is not None:
        location = _folder(imported.__spec__)
        if not _same(location, runtime.location):
            raise RuntimeChoiceError(
                f"t5x was already imported from {location}, so {runtime.location} can no longer be used in this"
                " process: choose the runtime before anything imports t5x, or run in a fresh process"
            )
    import_hooks.use_runtime(runtime.kind)


def brings_t5x(dist: importlib.metadata.Distribution) -> bool:
    """Returns whether a distribution named ``t5x`` contains the package, as files or by pointing to a checkout.

    PyPI's ``t5x 0.0.0`` contains nothing. Its version does not show that, because T5X itself is also 0.0.0.
    """
    if _editable_root(dist) is not None or Path(str(dist.locate_file("t5x"))).is_dir():
        return True
    return any(f.suffix in (".pth", ".egg-link") for f in dist.files or ())


def _embedded(how: str, *, lacks_others: bool = False) -> Runtime:
    return Runtime("embedded", __version__, os.path.join(import_hooks.EMBEDDED_PATH, "t5x"), how, lacks_others)


def _passed_over(places: Sequence[str]) -> str:
    return "".join(f"; passed over {place}" for place in places)


def _placeholders() -> list[str]:
    """Returns the distributions named ``t5x`` that do not contain the package, in words."""
    return [
        f"the distribution t5x {dist.version} in {dist.locate_file('')} (PyPI's placeholder: it holds no module)"
        for dist in _distributions()
        if not brings_t5x(dist)
    ]


def _distributions() -> Iterable[importlib.metadata.Distribution]:
    import importlib.metadata  # which imports forty modules, and most commands only need the runtime's folder

    return importlib.metadata.distributions(name="t5x")


def _installed(spec: ModuleSpec, note: str) -> Runtime | None:
    """Returns the runtime at a spec; None if that is the embedded one, found through the import path."""
    location = _folder(spec)
    if _same(location, os.path.join(import_hooks.EMBEDDED_PATH, "t5x")):
        return None
    return Runtime("installed", _version(location), location, note)


def _folder(spec: ModuleSpec) -> str:
    return str(next(iter(spec.submodule_search_locations or ()), spec.origin or "an unknown place"))


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _how(finder: object, spec: ModuleSpec) -> str:
    dist = _distribution_of(_folder(spec))
    if finder is not PathFinder:
        return "editable install"
    if dist is not None:
        # `setup.py develop` leaves a link to the checkout, and its metadata lists no installed files.
        listed = dist.read_text("RECORD") or dist.read_text("installed-files.txt")
        return "editable install" if _editable_root(dist) is not None or listed is None else "installed package"
    is_here = _same(os.path.dirname(_folder(spec)), os.curdir)
    return "the package t5x of the working folder" if is_here else "folder on the import path"


def folder_to_import_from(runtime: Runtime) -> str | None:
    """Returns the folder that a new process needs on its import path to import this T5X; None if it needs none."""
    if runtime.kind == "embedded" or _distribution_of(runtime.location) is not None:
        return None
    return os.path.dirname(runtime.location)


def _distribution_of(location: str) -> importlib.metadata.Distribution | None:
    """Returns the distribution that installed the package at a folder; None for a bare checkout."""
    for dist in _distributions():
        root = _editable_root(dist)
        if root is None and _same(str(dist.locate_file("t5x")), location):
            return dist
        if root is not None and Path(os.path.realpath(location)).is_relative_to(os.path.realpath(root)):
            return dist
    return None


def _direct_url(dist: importlib.metadata.Distribution) -> dict[str, object]:
    # PEP 610: the origin of a distribution, if not an index.
    try:
        value = json.loads(dist.read_text("direct_url.json") or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _editable_root(dist: importlib.metadata.Distribution) -> str | None:
    url = _direct_url(dist)
    details = url.get("dir_info")
    if isinstance(details, dict) and details.get("editable"):
        import urllib.parse

        return urllib.parse.unquote(urllib.parse.urlsplit(str(url.get("url", ""))).path)
    return None


def _version(location: str) -> str:
    dist = _distribution_of(location)
    commit = _git_commit(os.path.dirname(os.path.realpath(location)))
    if dist is not None and commit is None:
        vcs = _direct_url(dist).get("vcs_info")
        commit = str(vcs["commit_id"]) if isinstance(vcs, dict) and "commit_id" in vcs else None
    parts = [dist.version] if dist is not None else []
    if commit:
        parts.append(f"commit {commit[:12]}")
    return ", ".join(parts) or _UNKNOWN


def _git_commit(checkout: str) -> str | None:
    """Returns the commit of a checkout's HEAD, read without git; None if there is no readable repository."""
    git = Path(checkout, ".git")
    try:
        if git.is_file():  # a worktree or submodule: the file's line names the repository
            git = git.parent / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head or None
        name = head.removeprefix("ref:").strip()
        common = git / (git / "commondir").read_text().strip() if (git / "commondir").is_file() else git
        if (common / name).is_file():
            return (common / name).read_text().strip()
        packed = (common / "packed-refs").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)


def program_environment(
    slice: Slice | None,
    runtime: Runtime,
    preference: str = "auto",
    environment: Mapping[str, str] | None = None,
    pod: Pod | None = None,
) -> dict[str, str]:
    """Returns the complete environment for a command, which determines its T5X and its slice.

    It consists of variables alone. A folder at the start of PYTHONPATH has a ``sitecustomize`` that sets up each
    interpreter when it starts; a folder at the start of PATH has a ``python`` and ``python3`` that put that folder back
    if a script has set its own PYTHONPATH.

    Args:
      slice: the slice to emulate; None leaves devices and meshes unchanged.
      runtime: the T5X that was found here.
      preference: ``auto`` lets each process search again, because its import path may differ. Processes that find no
        T5X use the one that was found here.
      environment: the environment to start from; this process's own by default.
      pod: the process's place, if it is a single host of the slice and does not stand for all of them.
    """
    from t5x_harness.slices.devices import device_environment

    base = dict(os.environ if environment is None else environment)
    processes = pod.processes if pod else 1
    return {
        **base,
        **({**device_environment(slice, base, processes=processes), SLICE_VARIABLE: slice.name} if slice else {}),
        **(pod.variables() if pod else {}),
        RUNTIME_VARIABLE: runtime.kind if preference != "auto" else "auto",
        RUNTIME_FOLDER_VARIABLE: folder_to_import_from(runtime) or "",
        "PYTHONPATH": _in_front(import_hooks.BOOTSTRAP_PATH, base.get("PYTHONPATH", "")),
        "PATH": _in_front(_PROGRAMS, base.get("PATH", os.defpath)),
    }


def _in_front(folder: str, path: str) -> str:
    """Returns a path list that begins with this folder."""
    return os.pathsep.join([folder, *(p for p in path.split(os.pathsep) if p != folder)]) if path else folder
