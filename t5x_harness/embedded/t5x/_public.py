"""Lets a public module show what its private modules define as its own."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

_Named = TypeVar("_Named", bound=Callable[..., Any])


def publish(module: str) -> None:
    """Makes the classes and functions in a module's `__all__` name that module as their home.

    Configs, logs, pickles and tracebacks then say `t5x.decoding.beam_search`, the name that users know and import,
    wherever the code stands. Values and type aliases, which know no home, are left as they are.

    Args:
      module: `__name__` of the public module, to be called at its end.
    """
    public = sys.modules[module]
    for name in public.__all__:
        thing = getattr(public, name)
        if isinstance(thing, (type, types.FunctionType)) and thing.__module__.startswith("t5x."):
            thing.__module__ = module


def shown_as(module: str) -> Callable[[_Named], _Named]:
    """Makes one class or function name a public module as its home, where it is defined.

    Needed instead of `publish` where a name must be right before the public module is complete: orbax keys its handlers
    by it, and gin registers a configurable under it.

    Args:
      module: the dotted public module, such as `t5x.checkpoints`.

    Returns:
      A decorator. Put it outermost: `dataclass` resolves annotations through `__module__`.
    """

    def rename(named: _Named) -> _Named:
        named.__module__ = module
        return named

    return rename
