"""Names that show a public module as their home from the moment they are defined."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, TypeVar

_Named = TypeVar("_Named", bound=Callable[..., Any])


def shown_as(module: str) -> Callable[[_Named], _Named]:
    """Makes one class, with its methods, or one function name a public module as its home.

    Orbax keys its handlers by that name and gin registers a configurable under it, both where the class is defined:
    the end of the public module would be too late.

    Args:
        module: the dotted public module, such as ``t5x.checkpoints``.

    Returns:
        A decorator. Put it outside of ``dataclass``, which resolves annotations through the module, and inside of
        gin's.
    """

    def rename(named: _Named) -> _Named:
        home = named.__module__
        for member in vars(named).values() if isinstance(named, type) else ():
            method = getattr(member, "__func__", member)  # what a static or a class method wraps
            if isinstance(method, types.FunctionType) and method.__module__ == home:
                method.__module__ = module  # gin binds arguments of methods in the module of their class only
        named.__module__ = module
        return named

    return rename
