"""Private names of other libraries occur only in upstream/, where a test of each name fails once it is removed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(p for folder in ("t5x_harness", "plugin", "fixtures") for p in (ROOT / folder).rglob("*.py"))
HOUSE = "t5x_harness/upstream/"
EMBEDDED = "t5x_harness/embedded/"  # it consists of private modules
DOCUMENTED = {"_exit", "_getframe", "_replace", "_ActionsContainer", "_ArgumentGroup"}
"""The documented names of os, sys and named tuples, and those of argparse that annotations need."""

PATH = re.compile(r"(?!t5x\b)[a-z]\w*(?:\.\w+)*\._[a-z]\w*(?:[.:]\w+)*")
"""Matches a private module or attribute as text, such as ``jax._src.lru_cache``."""


def is_private(name: str) -> bool:
    return bool(re.fullmatch(r"_(?!_)\w+", name)) and name not in DOCUMENTED


DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Name, ast.arg, ast.Attribute)


def defined(tree: ast.AST) -> Iterator[str]:
    """Yields the names that a module defines itself."""
    for node in (node for node in ast.walk(tree) if isinstance(node, DEFINING)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                yield name


USES = (ast.Attribute, ast.keyword, ast.Call, ast.ImportFrom, ast.Import, ast.Constant)


def foreign(tree: ast.AST, own: set[str], everywhere: set[str]) -> Iterator[tuple[int, str]]:
    """Yields the lines that use a private name that neither the module nor, for ``self``, any other module defines."""
    for node in (node for node in ast.walk(tree) if isinstance(node, USES)):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name) if name in everywhere:
                continue
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name) if is_private(name):
                yield node.lineno, name
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)) if is_private(name) and name not in own:
                yield node.lineno, name
            case ast.Call(
                func=ast.Name(id="getattr" | "setattr" | "hasattr" | "delattr"),
                args=[_, ast.Constant(value=str(name)), *_],
            ):
                if is_private(name) and name not in own:
                    yield node.lineno, name
            case ast.ImportFrom(module=str(module), level=0) if not module.startswith(("t5x_harness", "t5x.")):
                for part in (*module.split("."), *(alias.name for alias in node.names)):
                    if is_private(part):
                        yield node.lineno, f"{module}.{part}"
            case ast.Import():
                yield from ((node.lineno, a.name) for a in node.names if any(map(is_private, a.name.split("."))))
            case ast.Constant(value=str(text)) if PATH.fullmatch(text):
                yield node.lineno, text


def test_private_names_of_other_libraries_are_used_in_upstream_alone() -> None:
    trees = {str(p.relative_to(ROOT)): ast.parse(p.read_text(encoding="utf-8")) for p in FILES}
    own = {name: set(defined(tree)) for name, tree in trees.items()}
    everywhere = set().union(*own.values())
    found = [
        f"{name}:{line}: {used}"
        for name, tree in trees.items()
        if not name.startswith((HOUSE, EMBEDDED))
        for line, used in foreign(tree, own[name], everywhere)
    ]
    assert not found, "move these into a named function of t5x_harness/upstream/:\n" + "\n".join(found)


FOREIGN = [
    "rates = mixture._task_to_rate",
    "self._reporter._tw.write('x')",
    "setattr(gpath, '_is_zonal_gcs_bucket', None)",
    "from _pytest.fixtures import TopRequest",
    "import jax._src.lru_cache",
    "from jax import _src",
    "after_import('jax._src.lru_cache', print)",
    "pytest.skip.Exception('x', _use_item_location=True)",
    "class A(B):\n    def _split_scope(self): return super()._split_scope()",
]  # fmt: skip
OWN = [
    "os._exit(0)",
    "from t5x._inference import step_with_indices",
    "class A:\n    def __init__(self): self._x = 1\n    def same(self, other): return self._x == other._x",
    "print(x.__wrapped__, 'see _pytest', 'a._b and c')",
]


@pytest.mark.parametrize("line", [*FOREIGN, *OWN])
def test_each_way_to_use_one_is_found_and_what_is_public_or_one_s_own_is_not(line: str) -> None:
    tree = ast.parse(line)
    assert bool(list(foreign(tree, set(defined(tree)), set()))) is (line in FOREIGN)
