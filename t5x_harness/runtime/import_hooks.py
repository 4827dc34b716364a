"""Import hooks that decide which package ``t5x`` is.

Every Python process that ``t5x-harness exec`` starts loads this module, so it imports nothing but the import system.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from t5x_harness.system.after_import import AfterImport

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EMBEDDED_PATH = os.path.join(_PACKAGE, "embedded")
"""The folder that holds the embedded package ``t5x``."""

BOOTSTRAP_PATH = os.path.join(_PACKAGE, "bootstrap")
"""The folder whose ``sitecustomize`` sets up interpreters whose PYTHONPATH begins with it."""

_OF_GUIDES = {f"t5x.{mode}_unfragmented": mode for mode in ("train", "eval", "infer")}
"""Programs that T5X's guides and users' scripts name but no T5X has, with the run mode that they mean."""


class RuntimeFinder:
    """Resolves ``import t5x`` to an installed T5X if there is one, otherwise to the embedded one.

    It comes first on ``sys.meta_path`` and asks the other finders, so that every kind of installation wins over the
    embedded runtime: a folder on the import path, a package, an editable install whose finder comes after the import
    path. A folder that only happens to be named ``t5x`` (a clone, seen from its parent folder) hides none of them.
    """

    def __init__(self, preference: str, folder: str = "") -> None:
        self.preference = preference
        self.folder = folder

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of ``t5x``; None for every other module.

        Raises:
          ModuleNotFoundError: the harness was installed without the embedded T5X.
        """
        if fullname != "t5x":
            return None
        if self.preference != "embedded":
            for _, spec in installed_specs(last=self.folder):
                if holds_t5x(spec):
                    return spec
        if self.preference == "installed":
            return None
        if (own := PathFinder.find_spec("t5x", [EMBEDDED_PATH])) is None:
            raise ModuleNotFoundError(
                f"the embedded T5X is missing from {EMBEDDED_PATH}; reinstall t5x-harness", name="t5x"
            )
        return own


class _GuidePrograms:
    """The last finder, for programs that only guides mention, which names their replacements."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns None for every module that is not such a program.

        Raises:
          ModuleNotFoundError: the module is such a program.
        """
        if (mode := _OF_GUIDES.get(fullname)) is None:
            return None
        raise ModuleNotFoundError(
            f"No module named {fullname!r}: no T5X has it; use t5x.main --run_mode={mode}", name=fullname
        )


def installed_specs(folders: Sequence[str] = (), last: str = "") -> Iterator[tuple[Any, ModuleSpec]]:
    """Yields the spec of ``t5x`` that each other finder returns, in the order in which Python asks them.

    Args:
      folders: folders that will be at the start of the import path.
      last: a folder that is searched after all finders; empty for none.
    """
    first = PathFinder.find_spec("t5x", list(folders)) if folders else None
    if first is not None:
        yield PathFinder, first
    for finder in list(sys.meta_path):
        if isinstance(finder, RuntimeFinder | AfterImport) or not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec("t5x", None)
        if spec is not None:
            yield finder, spec
    if last and (spec := PathFinder.find_spec("t5x", [last])) is not None:
        yield PathFinder, spec


def holds_t5x(spec: ModuleSpec) -> bool:
    """Returns whether a spec of ``t5x`` is T5X itself: a package that has T5X's central module.

    A namespace package (a folder without ``__init__.py``) is not, nor is a package that merely has the name.
    """
    locations = spec.submodule_search_locations
    if spec.origin is None or not locations:
        return False
    return PathFinder.find_spec("t5x.partitioning", list(locations)) is not None


def use_runtime(preference: str, folder: str = "") -> None:
    """Makes ``import t5x`` resolve to ``auto``, ``installed`` or ``embedded`` from now on in this process.

    Args:
      preference: as for :func:`~t5x_harness.runtime.choice.find_runtime`.
      folder: the folder of an installed T5X that this process does not find by itself; empty if there is none.
    """
    others = [f for f in sys.meta_path if not isinstance(f, RuntimeFinder | _GuidePrograms)]
    sys.meta_path[:] = [RuntimeFinder(preference, folder), *others, _GuidePrograms()]


def ensure_t5x() -> None:
    """Makes ``import t5x`` find the T5X that ``auto`` selects, unless this process has already chosen one."""
    if not any(isinstance(finder, RuntimeFinder) for finder in sys.meta_path):
        use_runtime("auto")
