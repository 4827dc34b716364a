"""Imports without garbage collection, which walks through all that a large import has made, again and again.

A program calls :func:`try_disable_gc_during_import` before its imports; the environment variable
``EXPERIMENTAL_DISABLE_GC_DURING_IMPORT`` says whether that does anything.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import os
from collections.abc import Iterator
from typing import Any

_import = builtins.__import__


@contextlib.contextmanager
def disabled_gc() -> Iterator[None]:
    """Leaves garbage uncollected until the end, and collection as it was after it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def gc_disabled_import(*args: Any, **kwargs: Any) -> Any:
    """Imports what ``__import__`` is given, and collects no garbage meanwhile."""
    with disabled_gc():
        return _import(*args, **kwargs)


def try_disable_gc_during_import() -> None:
    """Makes every import from now on one without garbage collection, if the environment variable is set."""
    if os.environ.get("EXPERIMENTAL_DISABLE_GC_DURING_IMPORT"):
        builtins.__import__ = gc_disabled_import
