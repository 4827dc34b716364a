"""Public names of a package, each of which is imported from its module when first used."""

import ast
import functools
import importlib
from pathlib import Path
from typing import Any


def public_name(package: str, file: str, name: str) -> Any:
    """Returns an attribute for a package's ``__getattr__``.

    The imports in the package's block ``if TYPE_CHECKING``, which type checkers read, are the only list of its names;
    ``__all__`` is derived from them.

    Args:
      package: the package's ``__name__``.
      file: its ``__file__``.
      name: the attribute.

    Raises:
      AttributeError: the package has no such name.
    """
    modules = _modules(file)
    if name == "__all__":
        return sorted(modules)
    if name not in modules:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(importlib.import_module(modules[name]), name)


@functools.cache
def _modules(file: str) -> dict[str, str]:
    blocks = [node for node in ast.parse(Path(file).read_text(encoding="utf-8")).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}
