"""Runs callbacks when modules have been imported.

Every Python process that ``t5x-harness exec`` starts loads this module, so it imports nothing but the import system.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def after_import(module_name: str, callback: Callable[[ModuleType], None]) -> None:
    """Calls back with a module once it is imported, or at once if it already is; a later callback replaces this one."""
    hook = next((f for f in sys.meta_path if isinstance(f, AfterImport)), None)
    if hook is None:
        hook = AfterImport()
        sys.meta_path.insert(0, hook)
    hook.callbacks[module_name] = callback
    if module_name in sys.modules:
        callback(sys.modules[module_name])


class AfterImport:
    """A finder that finds nothing itself, but wraps the loaders of the modules with a callback."""

    def __init__(self) -> None:
        self.callbacks: dict[str, Callable[[ModuleType], None]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of a module with a callback, with its loader wrapped, or None for any other module."""
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
    """A loader that calls back when its module has run, and otherwise acts like the wrapped loader."""

    def __init__(self, loader: Any, callback: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._callback = callback

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        # Code that asks the module for its loader must see the original one.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._callback(module)
