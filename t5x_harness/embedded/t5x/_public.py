"""Lets a public module show what its private modules define as its own."""

from __future__ import annotations

import inspect
import sys
import types


def publish(module: str) -> None:
    """Makes the classes and functions in a module's `__all__` name that module as their home.

    Configs, logs, pickles and tracebacks then say `t5x.decoding.beam_search`, the name that users know and import,
    wherever the code stands. Methods move with their class: Gin applies bindings such as
    `models.EncoderDecoderModel.predict_batch_with_aux.num_decodes = 4` only to methods that name the class's module,
    and drops the others without a word.

    Values and type aliases, which know no home, are left as they are, and so is what other packages define.

    Args:
      module: `__name__` of the public module, to be called at its end.
    """
    public = sys.modules[module]
    for name in public.__all__:
        thing = getattr(public, name)
        if not isinstance(thing, (type, types.FunctionType)) or not thing.__module__.startswith("t5x."):
            continue
        home = thing.__module__
        if isinstance(thing, type):  # its annotations are text, which is read in the module it names as its home
            thing.__annotations__ = inspect.get_annotations(thing, eval_str=True)
        thing.__module__ = module
        for member in vars(thing).values():
            method = getattr(member, "__func__", member)  # what a static or a class method wraps
            if isinstance(method, types.FunctionType) and method.__module__ == home:
                method.__module__ = module
