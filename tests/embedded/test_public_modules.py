"""A class or function is defined in the module that T5X defines it in, and private modules define nothing public.

The example networks are left out: they share their layers.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parents[1]
API: dict[str, dict[str, Any]] = json.loads((HERE / "reference/api.json").read_text())
PACKAGE = HERE.parent / "t5x_harness/embedded/t5x"


def file_of(module: str) -> Path:
    return PACKAGE.parent / (module.replace(".", "/") + ".py")


MODULES = [module for module in API if file_of(module).is_file() and ".examples." not in module]
PRIVATE = sorted(path for path in PACKAGE.glob("_*.py") if path.name != "__init__.py")


def defined(path: Path) -> set[str]:
    """The names that a file defines by itself: imports do not count."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.ClassDef() | ast.FunctionDef():
                names.add(node.name)
            case ast.Assign():
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize("module", MODULES)
def test_the_public_module_defines_what_t5x_defines_there(module: str) -> None:
    assert sorted(set(API[module]) - defined(file_of(module))) == []


@pytest.mark.parametrize("path", PRIVATE, ids=lambda path: path.stem)
def test_a_private_module_defines_nothing_public(path: Path) -> None:
    public = {name for module in API for name in API[module]}
    assert sorted(defined(path) & public) == []
