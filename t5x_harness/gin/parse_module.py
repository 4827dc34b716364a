"""Python's own parser, for threads that read modules at the same time."""

from __future__ import annotations

import ast
import threading

# Python 3.11 counts how deep a tree is in one place for all threads, and a thread may be switched to where the
# tree's nodes are made: then both end with "SystemError: AST constructor recursion depth mismatch".
_ALONE = threading.Lock()


def parse_module(source: str | bytes) -> ast.Module:
    """Returns the syntax tree of a module.

    Args:
      source: text, or bytes in the encoding that they declare.

    Raises:
      SyntaxError: it is not Python.
      ValueError: it has a null character in it.
    """
    with _ALONE:
        return ast.parse(source)
