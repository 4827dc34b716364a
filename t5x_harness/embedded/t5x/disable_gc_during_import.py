"""Imports without garbage collection, which would traverse the objects of a large import again and again.

A program calls :func:`try_disable_gc_during_import` before its imports; the environment variable
``EXPERIMENTAL_DISABLE_GC_DURING_IMPORT`` turns it on.
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
    """Suspends garbage collection, and restores its state at the end."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def gc_disabled_import(*args: Any, **kwargs: Any) -> Any:
    """Imports a module as ``__import__`` does, without garbage collection."""
    with disabled_gc():
        return _import(*args, **kwargs)


def try_disable_gc_during_import() -> None:
    """Makes all further imports run without garbage collection, if the environment variable is set."""
    if os.environ.get("EXPERIMENTAL_DISABLE_GC_DURING_IMPORT"):
        builtins.__import__ = gc_disabled_import
