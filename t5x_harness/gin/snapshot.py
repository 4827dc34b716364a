"""Configurables and their parameters: from snapshots for T5X and its libraries, from source for other modules."""

import ast
import dataclasses
import functools
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from t5x_harness.gin.files import ModuleFinder
from t5x_harness.gin.program import MAIN
from t5x_harness.gin.sources import SourceFinder, may_load
from t5x_harness.gin.symbols import BINARIES, BUILTINS

Value = TypeVar("Value")

LIBRARIES = ("seqio", "optax")
"""The libraries other than T5X that have a snapshot; package and distribution share the name."""

# The configurables that Gin itself provides, and their parameters.
_GIN: Mapping[str, tuple[str, ...]] = {
    "gin.macro": ("value",),
    "gin.constant": (),
    "gin.singleton": ("constructor",),
}


@dataclasses.dataclass(frozen=True)
class Configurable:
    """A function, class or method.

    Attributes:
      name: the full name, such as ``t5x.utils.DatasetConfig``.
      parameters: the parameters that Gin can bind, in order; None if the record does not list them.
      required: the parameters without a default.
      takes_any: whether it accepts any keyword.
      defaults: the recorded defaults that are numbers, booleans, texts or lists, which also stand for tuples.
      denied: the parameters that its own decorator hides from Gin.
      annotations: the annotations of its parameters, if it is in a module of the user's.
    """

    name: str
    parameters: tuple[str, ...] | None
    required: tuple[str, ...] = ()
    takes_any: bool = False
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    denied: tuple[str, ...] = ()
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Snapshot:
    """The names in T5X, its libraries and the user's modules; answers are cautious if the version in use may differ.

    Args:
      t5x_parent: the folder with the package ``t5x`` in use; its sources are searched for a name before that name is
        called unknown, because a fork may have more than the record.
      finder: the finder of installed libraries and of the user's modules.
    """

    def __init__(self, t5x_parent: Path | None, finder: ModuleFinder) -> None:
        self.t5x_parent = t5x_parent
        self.finder = finder
        self.sources = SourceFinder(finder)
        self._doubts: dict[str, str | None] = {}
        self._found: dict[str, Configurable | None] = {}
        self._module_of: dict[str, str | None] = {}
        self._remembered: dict[tuple[Any, ...], Any] = {}

    def remembered(self, find: Callable[..., Value], *arguments: str) -> Value:
        """Returns what a function finds in this snapshot, which is asked for each config again, and calls it once."""
        key = (find, *arguments)
        if key not in self._remembered:
            self._remembered[key] = find(self, *arguments)
        found: Value = self._remembered[key]
        return found

    def module_of(self, name: str) -> str | None:
        """Returns the known module that a full name belongs to: ``t5x.utils`` for ``t5x.utils.DatasetConfig``."""
        if name not in self._module_of:
            self._module_of[name] = self._search_module(name)
        return self._module_of[name]

    def _search_module(self, name: str) -> str | None:
        if name.split(".")[0] == BUILTINS or name in _GIN:
            return name.split(".")[0]
        return _recorded_module(name) or self.sources.module_of(name)

    def find(self, name: str) -> Configurable | None:
        """Looks up a full name; ``__main__`` means T5X's binaries."""
        name = canonical(BINARIES.get(name, name))
        if name not in self._found:
            self._found[name] = self._search(name)
        return self._found[name]

    def _search(self, name: str) -> Configurable | None:
        module = self.module_of(name)
        if module is None or module == BUILTINS:
            return None
        symbol, _, method = name[len(module) + 1 :].partition(".")
        if name in _GIN:
            return Configurable(name, _GIN[name], _GIN[name])
        if module not in _modules(module):  # from the source of a module that has no snapshot
            if self.sources.lacks(module, symbol):
                return None
            found = self.sources.parameters(module, symbol) if not method else None
            if found is None:
                return Configurable(name, None)
            return Configurable(name, found.names, (), found.takes_any, found.defaults, found.denied, found.annotations)
        entry = _modules(module)[module].get(symbol)
        if entry is None:
            return None
        methods = entry.get("methods", {})
        if method and method not in methods:
            return None
        signature = methods[method] if method else entry.get("call")
        if signature is None:
            return Configurable(name, None)
        required, optional = tuple(signature.get("required", ())), signature.get("optional", ())
        takes_any, defaults = signature.get("any", False), signature.get("defaults", {})
        return Configurable(name, (*required, *optional), required, takes_any, defaults)

    def doubt(self, name: str) -> str | None:
        """Returns why a library in use may differ from its record; None if nothing suggests that it does."""
        library = name.split(".")[0]
        if library not in LIBRARIES:
            return None
        if library not in self._doubts:
            recorded, version = _record(library)["version"], _installed_version(library, self.finder)
            differs = version not in (None, recorded)
            self._doubts[library] = f"the record is of {library} {recorded}, here is {version}" if differs else None
        return self._doubts[library]

    def names(self, module: str) -> tuple[str, ...]:
        """Returns the known symbols of a module."""
        if module == BUILTINS:
            return tuple(name.removeprefix("gin.") for name in _GIN)
        if module in _modules(module):
            return tuple(_modules(module)[module])
        source = self.sources.source(module)
        return source.names if source is not None else ()

    def methods(self, name: str) -> tuple[str, ...]:
        """Returns the known methods of a class."""
        module = self.module_of(name)
        if module is None:
            return ()
        symbol = name[len(module) + 1 :]
        if module in _modules(module):
            return tuple(_modules(module)[module].get(symbol, {}).get("methods", ()))
        source = self.sources.source(module)
        return source.methods(symbol) if source is not None else ()

    def suffixes(self, selector: str) -> tuple[str, ...]:
        """Returns the full names in T5X that a bare selector could mean, such as ``utils.DatasetConfig``."""
        return tuple(
            f"{module}.{symbol}"
            for module, symbols in _record("t5x")["modules"].items()
            for symbol in symbols
            if f".{module}.{symbol}".endswith(f".{selector}")
        )

    def is_module(self, name: str) -> bool:
        """Returns whether a full name certainly means a module."""
        if name in _modules(name):
            package, _, last = name.rpartition(".")
            return last not in _modules(name).get(package, {})
        return self.sources.is_only_module(name)

    def may_load(self, module: str, imported: Iterable[str]) -> bool:
        """Returns whether a user's module may be loaded once others have been imported."""
        names = [name for name in imported if name != MAIN]
        return bool(_modules(module)) or may_load(self.sources, module, names)

    @property
    def is_embedded(self) -> bool:
        """Whether the T5X in use is the embedded one, which has the recorded interface."""
        return self.t5x_parent == Path(__file__).parents[1] / "embedded"

    def is_class(self, name: str) -> bool:
        """Returns whether a full name is a recorded class."""
        name = canonical(name)
        module = self.module_of(name) or ""
        entry = _modules(module).get(module, {}).get(name[len(module) + 1 :], {})
        return bool(entry.get("class"))

    def mentions(self, module: str, word: str, *, anywhere: bool = False) -> bool:
        """Returns whether a module in use may have an unknown name, as names may be created at import.

        Args:
          module: the full name of the module.
          word: the name.
          anywhere: whether the word may be anything in the module's text, such as a method, and not only one of the
            module's own names.
        """
        if module == BUILTINS:
            return False
        if module.split(".")[0] in LIBRARIES and module in _modules(module):
            return word in _record(module.split(".")[0])["other"][module] or self.doubt(module) is not None
        source = self.sources.source(module)
        is_read = not anywhere and (self.is_embedded or module not in _modules(module))
        if source is not None and is_read:
            is_whole = module in _modules(module) or not source.is_open  # reading the embedded T5X shows all names
            return not (is_whole and word not in source.bound and not self.sources.is_module(f"{module}.{word}"))
        if module not in _modules(module):
            return source is None or source.is_open or source.mentions(word)
        return re.search(rf"\b{re.escape(word)}\b", self._text(module)) is not None

    def may_take(self, name: str, parameter: str) -> bool:
        """Returns whether a configurable in use, such as one of a fork, may have a parameter that the record lacks."""
        if name.split(".")[0] in LIBRARIES:
            return self.doubt(name) is not None
        module = self.module_of(BINARIES.get(name, name))
        if self.is_embedded or module is None or module not in _modules(module):
            return False
        symbol, _, method = BINARIES.get(name, name)[len(module) + 1 :].partition(".")
        names = _names_in(self._text(module), symbol, method)
        return names is not None and parameter in names

    def _text(self, module: str) -> str:
        """Returns the source of one of T5X's modules; empty if there is none."""
        file = self.t5x_parent.joinpath(*module.split(".")).with_suffix(".py") if self.t5x_parent else None
        return file.read_text(encoding="utf-8", errors="replace") if file is not None and file.is_file() else ""


def _names_in(source: str, symbol: str, method: str) -> frozenset[str] | None:
    """Returns the parameters and fields that a function or class of a module declares; None if they cannot be read."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == symbol:
            for part in ast.walk(node):
                if isinstance(part, ast.FunctionDef) and part.name in (symbol, method or "__init__"):
                    arguments = (*part.args.posonlyargs, *part.args.args, *part.args.kwonlyargs)
                    names.update(argument.arg for argument in arguments)
                elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    names.add(part.target.id)
    return frozenset(names)


@functools.cache
def _record(library: str) -> Mapping[str, Any]:
    """Reads a snapshot: ``modules`` with their symbols, and of a library its ``version`` and ``other`` names."""
    text = Path(__file__).with_name(f"{library}_api.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def _modules(name: str) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Returns the recorded modules of the library that a full name belongs to; empty if the library has no record."""
    root = name.split(".")[0]
    return _record(root)["modules"] if root in ("t5x", *LIBRARIES) else {}


@functools.lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """Returns the canonical name of a thing that several modules of a library export: ``seqio.Evaluator``."""
    module = _recorded_module(name)
    if module is None:
        return name
    symbol, dot, method = name[len(module) + 1 :].partition(".")
    target = _modules(module)[module].get(symbol, {}).get("is")
    return f"{target}{dot}{method}" if target else name


@functools.lru_cache(maxsize=4096)
def _recorded_module(name: str) -> str | None:
    """Returns the recorded module that a full name belongs to."""
    parts = name.split(".")
    modules = _modules(name)
    candidates = (".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1))
    return next((module for module in candidates if module in modules), None)


def _installed_version(library: str, finder: ModuleFinder) -> str | None:
    """Returns the version of the library that a run would import.

    Returns None if it is not installed, and ``another`` if it does not state its version.
    """
    found = finder.find(library)
    if found is None or found.origin is None:
        return None
    try:
        beside = os.listdir(found.origin.parents[1])
    except OSError:
        beside = []
    versions = [m[1] for name in beside if (m := re.fullmatch(rf"{library}-(\S+)\.dist-info", name))]
    return versions[0] if len(versions) == 1 else "another"
