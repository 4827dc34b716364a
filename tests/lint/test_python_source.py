"""Modules are parsed by several threads at once: runs that work ahead lint in threads of their own."""

from __future__ import annotations

import ast
import gc
import sys
import threading

import pytest

from t5x_harness.gin.parse_module import parse_module
from t5x_harness.gin.python_source import ModuleSource

FUNCTION = "def function_{n}(a, b=(1, [2, {{'c': {n}}}])):\n    return a + b[{n}] * (a - {n})\n"
SOURCE = "".join(FUNCTION.format(n=n) for n in range(300))


def test_threads_parse_the_same_tree() -> None:
    wanted, found = ast.dump(ast.parse(SOURCE)), []

    def parse() -> None:
        found.extend(ast.dump(parse_module(SOURCE)) == wanted for _ in range(8))

    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    gc.set_threshold(5)  # collections are where another thread comes in
    gc.callbacks.append(lambda phase, info: None)
    try:
        threads = [threading.Thread(target=parse) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.callbacks.pop()
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)
    assert found == [True] * 32


def test_what_is_no_python_is_a_syntax_error() -> None:
    with pytest.raises(SyntaxError):
        parse_module("def")


def test_imports_for_type_checkers_load_nothing() -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import heavy\nelse:\n    import light\n"
    source = ModuleSource("mine", text, parse_module(text), is_package=False)
    assert source.imported_modules == ("typing", "typing.TYPE_CHECKING", "light")
