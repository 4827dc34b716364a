"""T5X's configurables and their parameters, from a snapshot that ships with the harness."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

__all__ = ["Configurable", "Snapshot"]

_EMBEDDED = Path(__file__).parents[1] / "embedded"


@dataclasses.dataclass(frozen=True)
class Configurable:
    """A function, class or method.

    Attributes:
      name: full name, ``t5x.utils.DatasetConfig``.
      parameters: what Gin can bind, in order; None if the record does not say.
      required: those without a default.
      takes_any: whether it takes any keyword.
    """

    name: str
    parameters: tuple[str, ...] | None
    required: tuple[str, ...] = ()
    takes_any: bool = False


class Snapshot:
    """What the recorded T5X offers, and a cautious answer where the T5X in use may differ.

    Args:
      t5x_parent: the folder with the package ``t5x`` in use; its sources are searched for a name before that name is
        called unknown, because a fork may have more than the record.
    """

    def __init__(self, t5x_parent: Path | None) -> None:
        self._t5x_parent = t5x_parent
        self._modules = _load()
        self._texts: dict[str, str] = {}

    def module_of(self, name: str) -> str | None:
        """The recorded module that a full name lies in: ``t5x.utils`` for ``t5x.utils.DatasetConfig``."""
        parts = name.split(".")
        for count in range(len(parts) - 1, 0, -1):
            if (module := ".".join(parts[:count])) in self._modules:
                return module
        return None

    def find(self, name: str) -> Configurable | None:
        """Looks up a full name; the functions of ``__main__`` are those of T5X's binaries."""
        name = _BINARIES.get(name, name)
        module = self.module_of(name)
        if module is None:
            return None
        symbol, _, method = name[len(module) + 1 :].partition(".")
        entry = self._modules[module].get(symbol)
        if entry is None:
            return None
        signature = entry.get("methods", {}).get(method) if method else entry.get("call")
        if method and signature is None:
            return None
        return _configurable(name, signature)

    def names(self, module: str) -> tuple[str, ...]:
        """The recorded symbols of a module."""
        return tuple(self._modules.get(module, ()))

    def methods(self, name: str) -> tuple[str, ...]:
        """The recorded methods of a class."""
        module = self.module_of(name)
        entry = self._modules[module].get(name[len(module) + 1 :], {}) if module else {}
        return tuple(entry.get("methods", ()))

    def suffixes(self, selector: str) -> tuple[str, ...]:
        """The full names that a bare selector could mean: ``utils.DatasetConfig`` is one of ``t5x.utils``."""
        return tuple(
            f"{module}.{symbol}"
            for module, symbols in self._modules.items()
            for symbol in symbols
            if f".{module}.{symbol}".endswith(f".{selector}")
        )

    @property
    def is_embedded(self) -> bool:
        """Whether the T5X in use is the harness's own, which has the recorded interface."""
        return self._t5x_parent == _EMBEDDED

    def is_class(self, name: str) -> bool:
        """Whether a full name is a recorded class."""
        module = self.module_of(name)
        entry = self._modules[module].get(name[len(module) + 1 :]) if module else None
        return entry is not None and bool(entry.get("class"))

    def mentions(self, module: str, word: str) -> bool:
        """Whether the source of a module of the T5X in use holds a word: names may be made at import."""
        return re.search(rf"\b{re.escape(word)}\b", self._text(module)) is not None

    def may_take(self, name: str, parameter: str) -> bool:
        """Whether a configurable of the T5X in use may have a parameter that the record lacks, as a fork may."""
        module = self.module_of(_BINARIES.get(name, name))
        if self.is_embedded or module is None:
            return False
        symbol, _, method = _BINARIES.get(name, name)[len(module) + 1 :].partition(".")
        names = _names_in(self._text(module), symbol, method)
        return names is not None and parameter in names

    def _text(self, module: str) -> str:
        if module not in self._texts:
            self._texts[module] = ""
            if self._t5x_parent is not None:
                file = self._t5x_parent.joinpath(*module.split(".")).with_suffix(".py")
                if file.is_file():
                    self._texts[module] = file.read_text(encoding="utf-8", errors="replace")
        return self._texts[module]


def _names_in(source: str, symbol: str, method: str) -> frozenset[str] | None:
    """The parameters and fields that a function or class of a module states; None if they cannot be read."""
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


_BINARIES = {
    "__main__.train": "t5x.train.train",
    "__main__.evaluate": "t5x.eval.evaluate",
    "__main__.infer": "t5x.infer.infer",
}


def _configurable(name: str, signature: dict[str, Any] | None) -> Configurable:
    if signature is None:
        return Configurable(name, None)
    required = tuple(signature.get("required", ()))
    return Configurable(
        name, (*required, *signature.get("optional", ())), required, takes_any=signature.get("any", False)
    )


def _load() -> dict[str, dict[str, Any]]:
    text = resources.files("t5x_harness.lint").joinpath("t5x_api.json").read_text(encoding="utf-8")
    modules: dict[str, dict[str, Any]] = json.loads(text)["modules"]
    return modules
