"""Finds the sources of modules and follows the names that they import from each other."""

import ast
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence

from t5x_harness.gin.files import ModuleFinder
from t5x_harness.gin.python_source import ModuleSource, Parameters

# Python 3.11 counts the depth of a tree in one place for all threads, and may switch threads while it creates the
# tree's nodes: then both threads fail with "SystemError: AST constructor recursion depth mismatch".
_ALONE = threading.Lock()


def parse_module(source: str | bytes) -> ast.Module:
    """Returns the syntax tree of a module.

    Args:
      source: the text, or bytes in the encoding that they declare.

    Raises:
      SyntaxError: it is not Python.
      ValueError: it contains a null character.
    """
    with _ALONE:
        return ast.parse(source)


# They are too large to read for one name, and do not use Gin.
_LIBRARIES = frozenset(
    "absl airio array_record babel chex clu datasets fiddle flax grain huggingface_hub immutabledict jax jaxlib "
    "ml_collections ml_dtypes msgpack nltk numpy optax orbax packaging pandas regex requests rouge_score sacrebleu "
    "scipy sentencepiece seqio sklearn tensorboard tensorflow tensorflow_datasets tensorflow_text tensorstore torch "
    "tqdm transformers typing_extensions".split()
)

_MOST_HOPS = 5  # imports from a name to the module that defines it
_MOST_MODULES = 300  # modules that are searched for constants


class SourceFinder:
    """Reads the sources of modules, each once.

    Args:
      modules: the finder of modules.
    """

    def __init__(self, modules: ModuleFinder) -> None:
        self._modules = modules
        self._sources: dict[str, ModuleSource | None] = {}

    def source(self, module: str) -> ModuleSource | None:
        """Returns a module's source; None if it has no readable source."""
        if module not in self._sources:
            self._sources[module] = self._read(module)
        return self._sources[module]

    def module_of(self, name: str) -> str | None:
        """Returns the module that a full name belongs to, if it has readable source and is not a large library."""
        parts = name.split(".")
        if _is_library(name):
            return None
        for count in range(len(parts) - 1, 0, -1):
            module = ".".join(parts[:count])
            if self._modules.find(module) is not None:
                return module if self.source(module) is not None else None
        return None

    def lacks(self, module: str, symbol: str) -> bool:
        """Returns whether a module certainly has no such name."""
        source = self.source(module)
        return not (source is None or source.is_open or symbol in source.bound or self.is_module(f"{module}.{symbol}"))

    def parameters(self, module: str, symbol: str) -> Parameters | None:
        """Returns the parameters that Gin can bind in a function or class, even an imported one; None if uncertain."""
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
        """Returns the module that may create a module found nowhere else; None if no module may.

        Args:
          name: the name of the missing module.
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
        """Returns whether a full name names a module."""
        return self._modules.find(name) is not None

    def is_only_module(self, name: str) -> bool:
        """Returns whether a full name certainly means a module, and not a name that its package defines."""
        package, _, last = name.rpartition(".")
        if _is_library(name) or not self.is_module(name):
            return False
        above = self._modules.find(package) if package else None
        if above is None or above.is_namespace:
            return True
        source = self.source(package)
        return source is not None and not source.is_open and last not in source.bound

    def has_other_code(self, name: str) -> bool:
        """Returns whether a name may mean code that cannot be read; a package may be missing."""
        found = self._modules.find(name)
        if found is None:
            return not self.is_module(name.partition(".")[0])
        return not found.is_namespace and self.source(name) is None

    def _read(self, module: str) -> ModuleSource | None:
        found = self._modules.find(module)
        if found is None or found.origin is None or found.origin.suffix != ".py":
            return None
        try:
            text = found.origin.read_text(encoding="utf-8")
            tree = parse_module(text)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        return ModuleSource(module, text, tree, is_package=found.origin.name == "__init__.py")


def _is_library(name: str) -> bool:
    """Returns whether a name belongs to a large library or to Python itself."""
    root = name.split(".")[0]
    return root in _LIBRARIES or root in sys.stdlib_module_names


def definer_of_constants(finder: SourceFinder, modules: Iterable[str]) -> str | None:
    """Returns the first module that may define Gin constants, among some modules and those that they import, if any."""
    for count, name in enumerate(_loaded(finder, modules)):
        source = finder.source(name)
        if source is not None and (source.may_define_constants or count > _MOST_MODULES):
            return name
    return None  # a module without Python source does not use Gin


def may_register(finder: SourceFinder, modules: Sequence[str]) -> bool:
    """Returns whether some modules, or those that they import, may register something with Gin by a decorator."""
    if any(finder.source(name) is None for name in modules):
        return True
    for count, name in enumerate(_loaded(finder, modules)):
        source = finder.source(name)
        if count > _MOST_MODULES or (source is not None and source.mentions("gin")):
            return True
        if source is None and finder.has_other_code(name):
            return True
    return False


def may_load(finder: SourceFinder, module: str, modules: Iterable[str]) -> bool:
    """Returns whether a user's module may be loaded once some modules have been imported."""
    for count, name in enumerate(_loaded(finder, modules, aside="t5x")):
        source = finder.source(name)
        if f"{name}.".startswith(f"{module}.") or count > _MOST_MODULES:
            return True
        if source.is_open if source is not None else finder.has_other_code(name):
            return True
    return False


def _loaded(finder: SourceFinder, modules: Iterable[str], *, aside: str = "") -> Iterator[str]:
    """Yields some modules, the packages that contain them, and the modules that they import.

    It skips large libraries and the package ``aside``. Names that a module imports from another are included, because
    only Python knows which of them are modules.
    """
    waiting = list(modules)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or not name or _is_library(name) or name.split(".")[0] == aside:
            continue
        seen.add(name)
        yield name
        waiting.append(name.rpartition(".")[0])
        if (source := finder.source(name)) is not None:
            waiting.extend(source.imported_modules)
