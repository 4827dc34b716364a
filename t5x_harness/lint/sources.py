"""Finds the sources of modules and asks them, through the names that they take from each other."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from t5x_harness.lint.modules import ModuleFinder
from t5x_harness.lint.parse_module import parse_module
from t5x_harness.lint.python_source import Parameters, Source

# Too large to be read for one name, and none of them knows Gin.
_LIBRARIES = frozenset(
    "absl airio array_record babel chex clu datasets fiddle flax grain huggingface_hub immutabledict jax jaxlib "
    "ml_collections ml_dtypes msgpack nltk numpy optax orbax packaging pandas regex requests rouge_score sacrebleu "
    "scipy sentencepiece seqio sklearn tensorboard tensorflow tensorflow_datasets tensorflow_text tensorstore torch "
    "tqdm transformers typing_extensions".split()
)

_MOST_HOPS = 5  # from a name to the module that defines it
_MOST_MODULES = 300  # that are searched for constants


class SourceFinder:
    """Reads the sources of modules, each once.

    Args:
      modules: finds the modules.
    """

    def __init__(self, modules: ModuleFinder) -> None:
        self._modules = modules
        self._sources: dict[str, Source | None] = {}

    def source(self, module: str) -> Source | None:
        """Returns a module's source; None if it has none that can be read."""
        if module not in self._sources:
            self._sources[module] = self._read(module)
        return self._sources[module]

    def module_of(self, name: str) -> str | None:
        """Returns the module that a full name lies in, if its source can be read and is not that of a large library."""
        parts = name.split(".")
        if _is_library(name):
            return None
        for count in range(len(parts) - 1, 0, -1):
            module = ".".join(parts[:count])
            if self._modules.find(module) is not None:
                return module if self.source(module) is not None else None
        return None

    def lacks(self, module: str, symbol: str) -> bool:
        """Returns whether a module surely has nothing of this name."""
        source = self.source(module)
        return not (source is None or source.is_open or source.mentions(symbol) or self.is_module(f"{module}.{symbol}"))

    def parameters(self, module: str, symbol: str) -> Parameters | None:
        """Returns what Gin can bind of a function or class, also of one that the module imports.

        None if not certain.
        """
        for _ in range(_MOST_HOPS):
            source = self.source(module)
            if source is None or source.is_open:
                return None
            if symbol not in source.imports:
                return source.parameters(symbol)
            module, _, symbol = source.imports[symbol].rpartition(".")
            if _is_library(module):
                return None
        return None

    def opener(self, name: str, imported: Iterable[str]) -> str | None:
        """Returns the module that may make one that is found nowhere; None if there is none.

        Args:
          name: of the module that is missing.
          imported: the modules that are imported before it.
        """
        packages = (name.rsplit(".", count)[0] for count in range(1, name.count(".") + 1))
        before = (m.rsplit(".", count)[0] for m in imported for count in range(m.count(".") + 1))
        for module in dict.fromkeys((*packages, *before)):
            source = self.source(module) if not _is_library(module) else None
            if source is not None and source.changes_import_path:
                return module
        return None

    def is_module(self, name: str) -> bool:
        """Returns whether a full name is that of a module."""
        return self._modules.find(name) is not None

    def _read(self, module: str) -> Source | None:
        found = self._modules.find(module)
        if found is None or found.origin is None or found.origin.suffix != ".py":
            return None
        return _parsed(module, found.origin)


def _parsed(module: str, file: Path) -> Source | None:
    try:
        text = file.read_text(encoding="utf-8")
        tree = parse_module(text)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return Source(module, text, tree, is_package=file.name == "__init__.py")


def _is_library(name: str) -> bool:
    """Returns whether a name belongs to a large library or to Python itself."""
    root = name.split(".")[0]
    return root in _LIBRARIES or root in sys.stdlib_module_names


def definer_of_constants(finder: SourceFinder, modules: Iterable[str]) -> str | None:
    """Returns the first of some modules, or of those that they import, that may define Gin constants.

    None if none does.
    """
    waiting = list(modules)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or not name or _is_library(name):
            continue
        seen.add(name)
        waiting.append(name.rpartition(".")[0])
        source = finder.source(name)
        if source is None:  # no module, or one without Python source, which knows no Gin
            continue
        if source.may_define_constants or len(seen) > _MOST_MODULES:
            return name
        waiting.extend(source.imported_modules)
    return None
