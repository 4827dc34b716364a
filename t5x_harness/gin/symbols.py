"""The meaning of a selector in a gin file, through the file's imports or the names registered so far."""

import dataclasses
from collections.abc import Callable

from t5x_harness.gin.program import ENTRIES, ENTRY_POINTS, MAIN, Import

BUILTINS = "__gin__"
"""The module of names that a file looks up in Gin's own symbol ``gin``, which does not have them."""

# Registered as soon as T5X is imported, because these carry one of Gin's decorators.
_DECORATED = (
    "gin.macro",
    "gin.constant",
    "gin.singleton",
    "t5x.checkpoints.CheckpointManagerConstructor",
    "t5x.checkpoints.OrbaxCheckpointManagerInterface",
    "t5x.checkpoints.SaveBestCheckpointer",
    "t5x.checkpoints_utils.get_checkpoint_prefix",
    "t5x.gin_utils.bool_fn",
    "t5x.gin_utils.get_gin_config_str",
    "t5x.gin_utils.string_split_fn",
    "t5x.gin_utils.sum_fn",
    "t5x.gin_utils.summarize_gin_config",
    *ENTRIES,
)

BINARIES = {f"{MAIN}.{function}": f"{module}.{function}" for module, function in ENTRY_POINTS.values()}
"""Full names in T5X of the functions that configs bind in its binaries."""

# Each function of the binaries and of Gin is one object, no matter through which module it is reached.
_SAME = {
    **{name: binding for binding, name in BINARIES.items()},
    "t5x.precompile.precompile": f"{MAIN}.precompile",
    "gin.config.macro": "gin.macro",
    "gin.config.singleton": "gin.singleton",
}


@dataclasses.dataclass(frozen=True)
class Resolution:
    """The meaning of a selector.

    Attributes:
      target: the full name; None if the meaning is not known.
      missing_symbol: the first name of the selector, if the file imports nothing by that name.
      candidates: the full names that match, if there are several.
    """

    target: str | None
    missing_symbol: str | None = None
    candidates: tuple[str, ...] = ()


class Registry:
    """The configurables that Gin knows at a point of the program, by their registered names.

    Args:
      canonical: returns the canonical full name of a thing that has several.

    Attributes:
      calls: the arguments of all calls of :meth:`register`.
    """

    def __init__(self, canonical: Callable[[str], str]) -> None:
        self.canonical = canonical
        self._targets: dict[str, str] = {name: name for name in _DECORATED}
        self._registered = set(_DECORATED)
        self.calls: list[tuple[str, str]] = []

    def register(self, name: str, target: str) -> None:
        """Registers a configurable; it keeps the first name that it was given."""
        self.calls.append((name, target))
        if target not in self._registered:
            self._registered.add(target)
            self._targets[name] = target

    def match(self, selector: str) -> Resolution:
        """Looks a selector up as Gin does without dynamic registration: a full name, or the end of one."""
        if selector in self._targets:
            return Resolution(self._targets[selector])
        matches = sorted({t for name, t in self._targets.items() if name.endswith(f".{selector}")})
        if len(matches) > 1:
            return Resolution(None, candidates=tuple(matches))
        return Resolution(matches[0] if matches else None)


class FileScope:
    """The symbols of one file: Gin limits imports and dynamic registration to the file that contains them."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._symbols: dict[str, Import | None] = {}
        self._resolved: dict[str, Resolution] = {}
        self.imports: list[Import] = []
        self.dynamic = False
        self.lacks_symbol = False  # which a selector used

    def enable_dynamic_registration(self) -> None:
        """Resolves selectors through the file's imports from here on."""
        self.dynamic = True
        self._symbols["gin"] = None
        self._resolved.clear()

    def add(self, statement: Import) -> None:
        """Adds one of the file's imports."""
        self.imports.append(statement)
        if self.dynamic:
            self._symbols[statement.name] = statement
            self._resolved.clear()

    @property
    def names(self) -> tuple[str, ...]:
        """The symbols that the file's imports bind."""
        return tuple(self._symbols)

    def resolve(self, selector: str) -> Resolution:
        """Resolves a selector in this file's context, and registers it if dynamic registration does so."""
        if not self.dynamic:
            return self._registry.match(selector)
        if selector not in self._resolved:
            self._resolved[selector] = self._resolve(selector)
        return self._resolved[selector]

    def _resolve(self, selector: str) -> Resolution:
        root, *rest = selector.split(".")
        if root not in self._symbols:
            self.lacks_symbol = True
            return Resolution(None, missing_symbol=root)
        statement = self._symbols[root]
        if statement is None:  # Gin's own
            return Resolution(selector if selector in _DECORATED else f"{BUILTINS}.{'.'.join(rest)}")
        if statement.is_from or statement.alias:
            target = ".".join([statement.module, *rest])
            parts = statement.module.split(".")
            registered = ".".join([*parts[:-1], statement.alias or parts[-1], *rest])
        else:
            target = registered = selector
        target = self._registry.canonical(_SAME.get(target, target))
        self._registry.register(registered, target)
        # Gin also registers the class of a configurable method; a lower-case last part below a class name is a method.
        owner, _, _ = registered.rpartition(".")
        if owner.rpartition(".")[2][:1].isupper():
            self._registry.register(owner, target.rpartition(".")[0])
        return Resolution(target)
