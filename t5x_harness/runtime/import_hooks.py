"""Import hooks: which package ``t5x`` is, and what to do once one of its modules is imported.

Every Python process that ``t5x-harness exec`` starts loads this module, so it imports nothing but the import system.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from t5x_harness.variables import BRIEF_VARIABLE, POD_VARIABLE, RUNTIME_VARIABLE, SLICE_VARIABLE, STANDINS_VARIABLE

__all__ = [
    "BOOTSTRAP_PATH",
    "EMBEDDED_PATH",
    "RuntimeFinder",
    "after_import",
    "embedded_spec",
    "holds_t5x",
    "install_from_environment",
    "installed_specs",
    "use_runtime",
]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EMBEDDED_PATH = os.path.join(_PACKAGE, "embedded")
"""The folder that holds the embedded package ``t5x``."""

BOOTSTRAP_PATH = os.path.join(_PACKAGE, "bootstrap")
"""The folder whose ``sitecustomize`` sets interpreters up, where PYTHONPATH begins with it."""

_OF_GUIDES = {f"t5x.{mode}_unfragmented": mode for mode in ("train", "eval", "infer")}
"""Programs that T5X's guides and its users' scripts name and no T5X has, with the run mode that they mean."""


class RuntimeFinder:
    """Resolves ``import t5x``: to an installed T5X where there is one, and otherwise to the embedded one.

    It comes first on ``sys.meta_path`` and asks the others, so any way of installing wins over the embedded runtime:
    a folder on the import path, a package, an editable install whose finder comes after the import path.  A folder
    that only happens to be called ``t5x`` (a clone seen from outside) hides none of them.
    """

    def __init__(self, preference: str) -> None:
        self.preference = preference

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of ``t5x``; None for every other module."""
        if fullname != "t5x":
            return None
        if self.preference != "embedded":
            for _, spec in installed_specs():
                if holds_t5x(spec):
                    return spec
        return embedded_spec() if self.preference != "installed" else None


class _GuidePrograms:
    """A finder that comes last, for programs that only guides have: it says what there is in their place."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for every module that is no such program.

        Raises:
          ModuleNotFoundError: it is one.
        """
        if (mode := _OF_GUIDES.get(fullname)) is None:
            return None
        raise ModuleNotFoundError(
            f"No module named {fullname!r}: no T5X has it; use t5x.main --run_mode={mode}", name=fullname
        )


def embedded_spec() -> ModuleSpec:
    """The import spec of the embedded runtime.

    Raises:
      ModuleNotFoundError: the harness was installed without it.
    """
    spec = PathFinder.find_spec("t5x", [EMBEDDED_PATH])
    if spec is None:
        raise ModuleNotFoundError(
            f"the embedded T5X is missing from {EMBEDDED_PATH}; reinstall t5x-harness", name="t5x"
        )
    return spec


def installed_specs() -> Iterator[tuple[Any, ModuleSpec]]:
    """What every other finder makes of ``t5x``, in the order in which Python asks them, without importing it."""
    for finder in list(sys.meta_path):
        if isinstance(finder, RuntimeFinder | _AfterImport) or not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec("t5x", None)
        if spec is not None:
            yield finder, spec


def holds_t5x(spec: ModuleSpec) -> bool:
    """Whether a spec of ``t5x`` is T5X itself: a package that has T5X's central module.

    No namespace (a folder without ``__init__.py``) is, and no package that merely has the name.
    """
    locations = spec.submodule_search_locations
    if spec.origin is None or not locations:
        return False
    return PathFinder.find_spec("t5x.partitioning", list(locations)) is not None


def use_runtime(preference: str) -> None:
    """Makes ``import t5x`` resolve to ``auto``, ``installed`` or ``embedded`` from now on in this process."""
    others = [f for f in sys.meta_path if not isinstance(f, RuntimeFinder | _GuidePrograms)]
    sys.meta_path[:] = [RuntimeFinder(preference), *others, _GuidePrograms()]


def after_import(module_name: str, callback: Callable[[ModuleType], None]) -> None:
    """Calls back with a module when it has been imported: at once if it is already.  A later callback replaces it."""
    hook = next((f for f in sys.meta_path if isinstance(f, _AfterImport)), None)
    if hook is None:
        hook = _AfterImport()
        sys.meta_path.insert(0, hook)
    hook.callbacks[module_name] = callback
    if module_name in sys.modules:
        callback(sys.modules[module_name])


class _AfterImport:
    """A finder that finds nothing itself: it wraps the loaders of the modules that someone waits for."""

    def __init__(self) -> None:
        self.callbacks: dict[str, Callable[[ModuleType], None]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.callbacks:
            return None
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    loader: Any = _CallingLoader(spec.loader, self.callbacks[fullname])
                    spec.loader = loader
                return spec
        return None


class _CallingLoader:
    """A loader that calls back when its module has run, and is the wrapped loader in all else."""

    def __init__(self, loader: Any, callback: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._callback = callback

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        # Whoever asks the module for its loader is to see its own.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._callback(module)


def install_from_environment() -> None:
    """Sets up this process as ``t5x-harness exec`` asked for through the environment."""
    preference = os.environ.get(RUNTIME_VARIABLE)
    if preference:
        use_runtime(preference)
        after_import("subprocess", _keep_in_subprocesses)
    slice_name, is_brief = os.environ.get(SLICE_VARIABLE), bool(os.environ.get(BRIEF_VARIABLE))
    if slice_name or is_brief:
        after_import("jax._src.lru_cache", _write_entries_whole)
        # Every mode of T5X imports it, after JAX and before it makes anything.
        after_import("t5x.partitioning", lambda module: _set_up(module, slice_name, is_brief))
    if project := os.environ.get(STANDINS_VARIABLE):
        from t5x_harness.standins.in_process import install

        install(project)
    if os.environ.get(POD_VARIABLE):
        from t5x_harness.slices.pod import Pod, join_when_needed

        pod = Pod.from_environment(os.environ)
        assert pod
        join_when_needed(pod)


def _keep_in_subprocesses(subprocess: ModuleType) -> None:
    """Has the Pythons that this one starts with a PYTHONPATH of their own be set up like it."""
    original = subprocess.Popen.__init__

    def start(self: Any, *args: Any, env: Any = None, **kwargs: Any) -> None:
        given = os.environ if env is None else env
        folders = given.get("PYTHONPATH", "").split(os.pathsep)
        if RUNTIME_VARIABLE in given and BOOTSTRAP_PATH not in folders:
            kept = os.pathsep.join([BOOTSTRAP_PATH, *filter(None, folders)])
            env = {**given, "PYTHONPATH": kept}
        original(self, *args, env=env, **kwargs)

    start.__wrapped__ = original  # type: ignore[attr-defined]  # what inspects it sees the signature
    subprocess.Popen.__init__ = start


def _write_entries_whole(lru_cache: ModuleType) -> None:
    from t5x_harness.upstream.jax_cache import write_entries_whole

    write_entries_whole(lru_cache)


def _set_up(partitioning: ModuleType, slice_name: str | None, is_brief: bool) -> None:
    if slice_name:
        from t5x_harness.slices.emulated_mesh import emulate_slice
        from t5x_harness.slices.slice import get_slice

        emulate_slice(partitioning, get_slice(slice_name))
    if is_brief:
        from t5x_harness.upstream import autograph_kept as conversions_kept
        from t5x_harness.upstream.few_steps import prepare_for_few_steps

        prepare_for_few_steps()
        after_import("seqio", conversions_kept.adopt)
