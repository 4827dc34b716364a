"""One module's source: finds what is certain about the names in it, without importing the module."""

import ast
import collections
import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Code may add names to a module, or remove them, in ways that reading does not show.
_OPEN = re.compile(
    r"\b(?:globals|vars|locals|setattr|delattr|exec|eval|__getattr__|__dict__|__import__|import_module)\b|import\s*\*"
)
_IMPORT_PATH = re.compile(r"\b(?:__path__|extend_path|addsitedir|meta_path|path_hooks)\b|\bsys\.(?:path|modules)\b")
_CONSTANTS = re.compile(r"\bconstants_from_enum\b|\bconstant\b")

# Gin looks through its own decorators; others may change a signature.
_GIN_DECORATORS = frozenset({"gin.configurable", "gin.register"})
_DATACLASSES = frozenset({"dataclasses.dataclass", "flax.struct.dataclass"})
_BESIDE_INIT = frozenset({"frozen", "eq", "order", "repr", "slots", "kw_only", "unsafe_hash"})
"""The options of a dataclass that do not affect its constructor."""
_FLAX_MODULE = "flax.linen.Module"
_FLAX_FIELDS = ("parent", "name")


@dataclasses.dataclass(frozen=True)
class Parameters:
    """The parameters of a function or class that Gin can bind: the names in order, and whether any other name works.

    ``defaults`` has the literal defaults other than None. ``denied`` has the names that a decorator hides from Gin.
    ``annotations`` has the sources of annotations.
    """

    names: tuple[str, ...]
    takes_any: bool = False
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    denied: tuple[str, ...] = ()
    annotations: Mapping[str, str] = dataclasses.field(default_factory=dict)


class ModuleSource:
    """One module's source.

    Args:
      name: the module's full name.
      text: its source.
      tree: the parsed source.
      is_package: whether the source is an ``__init__.py``.
    """

    def __init__(self, name: str, text: str, tree: ast.Module, *, is_package: bool) -> None:
        self.name = name
        self._text = text
        self._tree = tree
        self._package = name if is_package else name.rpartition(".")[0]

    @functools.cached_property
    def is_open(self) -> bool:
        """Whether it may define names that cannot be read from it."""
        return _OPEN.search(self._text) is not None

    def mentions(self, word: str) -> bool:
        """Returns whether a word occurs anywhere in it."""
        return re.search(rf"\b{re.escape(word)}\b", self._text) is not None

    @functools.cached_property
    def changes_import_path(self) -> bool:
        """Whether it may change where Python finds modules, its own submodules or others."""
        return _IMPORT_PATH.search(self._text) is not None

    @functools.cached_property
    def required_imports(self) -> tuple[tuple[str, int], ...]:
        """The modules without which it cannot be imported, each with its line: none in functions, `if` and `try`."""
        found: list[tuple[str, int]] = []
        for node in self._tree.body:
            if isinstance(node, ast.Import):
                found += [(alias.name, node.lineno) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found.append((self._base(node), node.lineno))
        return tuple(found)

    @property
    def may_define_constants(self) -> bool:
        """Whether it may define constants for Gin."""
        return _CONSTANTS.search(self._text) is not None and self.mentions("gin")

    @functools.cached_property
    def imports(self) -> dict[str, str]:
        """Full names by the symbols that top-level imports bind."""
        bound: dict[str, str] = {}
        for node in self._tree.body:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.split(".")[0]
                    bound[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    bound[alias.asname or alias.name] = f"{self._base(node)}.{alias.name}"
        return bound

    @functools.cached_property
    def imported_modules(self) -> tuple[str, ...]:
        """The modules that any import in it may load, including those in functions but not those for type checkers."""
        found: dict[str, None] = {}
        for node in _executed(self._tree):
            if isinstance(node, ast.Import):
                found.update(dict.fromkeys(alias.name for alias in node.names))
            elif isinstance(node, ast.ImportFrom):
                base = self._base(node)
                found[base] = None
                found.update(dict.fromkeys(f"{base}.{alias.name}" for alias in node.names))
        return tuple(found)

    def _base(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self._package.split(".")
        above = parts[: len(parts) - node.level + 1]
        return ".".join([*above, *([node.module] if node.module else [])])

    @functools.cached_property
    def _definitions(self) -> dict[str, ast.FunctionDef | ast.ClassDef]:
        """The functions and classes that are defined once, at top level, and never reassigned."""
        found = {n.name: n for n in self._tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        counts = collections.Counter(_bound_names(self._tree))
        return {name: node for name, node in found.items() if counts[name] == 1}

    @functools.cached_property
    def bound(self) -> frozenset[str]:
        """All names that it binds."""
        return frozenset(_bound_names(self._tree))

    @property
    def names(self) -> tuple[str, ...]:
        """The functions and classes of the module."""
        return tuple(n.name for n in self._tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef)))

    def methods(self, symbol: str) -> tuple[str, ...]:
        """Returns the methods that a class itself defines."""
        node = self._definitions.get(symbol)
        body = node.body if isinstance(node, ast.ClassDef) else ()
        return tuple(n.name for n in body if isinstance(n, ast.FunctionDef))

    def parameters(self, symbol: str) -> Parameters | None:
        """Returns the parameters of a function or class that Gin can bind; None if they are not certain."""
        node = self._definitions.get(symbol)
        if node is None or self.is_open:
            return None
        names = [self._full_name(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list]
        decorators = [name for name in names if name not in _GIN_DECORATORS]
        if isinstance(node, ast.FunctionDef):
            found = None if decorators else _parameters(node.args, skip=0)
        else:
            found = self._of_class(node, decorators)
        for name, decorator in zip(names, node.decorator_list, strict=True):
            if found is not None and name in _GIN_DECORATORS and isinstance(decorator, ast.Call):
                found = _allowed(found, decorator)
        return found

    def _of_class(self, node: ast.ClassDef, decorators: list[str | None]) -> Parameters | None:
        bases = [self._full_name(base) for base in node.bases]
        if node.keywords or not _has_plain_body(node) or _method(node, "__new__"):
            return None
        is_flax = bases == [_FLAX_MODULE]
        if not (is_flax or all(base in ("object", "abc.ABC") for base in bases)):
            return None
        if (init := _method(node, "__init__")) is not None:
            return None if decorators or init.decorator_list else _parameters(init.args, skip=1)
        if is_flax and not decorators:
            fields = self._fields(node)
            return None if fields is None else dataclasses.replace(fields, names=(*fields.names, *_FLAX_FIELDS))
        given = (k.arg for d in node.decorator_list if isinstance(d, ast.Call) for k in d.keywords)
        is_plain = len(decorators) == 1 and decorators[0] in _DATACLASSES and not bases
        return self._fields(node) if is_plain and _BESIDE_INIT.issuperset(given) else None

    def _fields(self, node: ast.ClassDef) -> Parameters | None:
        """Returns the fields of a dataclass; None if one is not defined in a plain way."""
        names: dict[str, ast.expr | None] = {}
        kinds: dict[str, str] = {}
        for part in node.body:
            if not isinstance(part, ast.AnnAssign) or not isinstance(part.target, ast.Name):
                continue
            kind = ast.unparse(part.annotation)
            if "ClassVar" in kind or "KW_ONLY" in kind:
                continue
            if isinstance(part.value, ast.Call) and any(k.arg in ("init", None) for k in part.value.keywords):
                return None
            names[part.target.id] = part.value
            kinds[part.target.id] = kind
        return Parameters(tuple(names), defaults=_literals(names), annotations=kinds)

    def _full_name(self, node: ast.expr) -> str | None:
        """Returns the full name that an expression means through the imports, such as ``dataclasses.dataclass``."""
        if isinstance(node, ast.Name):
            if node.id in self.imports:
                name = self.imports[node.id]
                # The same module, by the name that the rest of this file uses.
                return {"gin.config": "gin", "flax.linen.module.Module": _FLAX_MODULE}.get(name, name)
            return node.id if node.id not in self._definitions else None
        if isinstance(node, ast.Attribute):
            owner = self._full_name(node.value)
            return f"{owner}.{node.attr}" if owner else None
        return None


def _parameters(arguments: ast.arguments, *, skip: int) -> Parameters:
    positional = [*arguments.posonlyargs, *arguments.args][skip:]
    every = (*positional, *arguments.kwonlyargs)
    names = tuple(argument.arg for argument in every)
    kinds = {argument.arg: ast.unparse(argument.annotation) for argument in every if argument.annotation is not None}
    values: dict[str, ast.expr | None] = dict(
        zip(names[: len(positional)][::-1], arguments.defaults[::-1], strict=False)
    )
    values |= {argument.arg: value for argument, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)}
    return Parameters(names, arguments.kwarg is not None, _literals(values), annotations=kinds)


def _allowed(parameters: Parameters, decorator: ast.Call) -> Parameters | None:
    """Returns the parameters that a decorator of Gin's lets configs bind; None if the decorator computes them."""
    names: Sequence[str] = parameters.names
    for keyword in decorator.keywords:
        if keyword.arg not in ("allowlist", "whitelist", "denylist", "blacklist"):
            continue
        try:
            listed = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, RecursionError):
            return None
        if listed:
            names = [n for n in names if (n in listed) == (keyword.arg in ("allowlist", "whitelist"))]
            if parameters.takes_any:  # a list may name more than the function's own parameters
                return None
    denied = tuple(n for n in parameters.names if n not in names)
    return dataclasses.replace(parameters, names=tuple(names), denied=denied)


def _literals(values: Mapping[str, ast.expr | None]) -> dict[str, Any]:
    """Returns the values that are literals other than None."""
    found = {}
    for name, node in values.items():
        try:
            value = ast.literal_eval(node) if node is not None else None
        except (ValueError, TypeError, RecursionError):
            continue
        if value is not None:
            found[name] = value
    return found


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == name), None)


def _has_plain_body(node: ast.ClassDef) -> bool:
    """Returns whether a class body contains only definitions, only one constructor, and no assignment of one."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.AnnAssign, ast.Assign, ast.Expr, ast.Pass)
    assigned = [t.id for n in node.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)]
    methods = [n.name for n in node.body if isinstance(n, ast.FunctionDef)]
    return (
        all(isinstance(n, kinds) for n in node.body)
        and methods.count("__init__") <= 1
        and not {"__init__", "__new__", "__signature__"} & set(assigned)
    )


def _executed(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields all nodes except those below ``if TYPE_CHECKING``."""
    waiting: collections.deque[ast.AST] = collections.deque([tree])
    while waiting:
        node = waiting.popleft()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting.extend(node.orelse)
        else:
            waiting.extend(ast.iter_child_nodes(node))


def _bound_names(tree: ast.Module) -> Iterator[str]:
    """Yields the names that a module binds at top level, including those that functions bind, once per binding."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
            for part in ast.walk(node):  # names that a function declares global, and those whose attributes it sets
                if isinstance(part, ast.Global):
                    yield from part.names
                elif isinstance(part, ast.Attribute) and isinstance(part.ctx, (ast.Store, ast.Del)):
                    yield from (n.id for n in ast.walk(part.value) if isinstance(n, ast.Name))
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield from (n.id for n in ast.walk(node.value) if isinstance(n, ast.Name))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)
        waiting.extend(ast.iter_child_nodes(node))
