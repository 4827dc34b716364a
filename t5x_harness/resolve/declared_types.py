"""Whether a bound value can be of its parameter's type: T5X checks no types, and fails only when it uses the value."""

import builtins
import collections.abc
import inspect
import sys
import types
import typing
from typing import Any

import gin

from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.gin.program import ENTRY_POINTS
from t5x_harness.lint.domains import parameters_of

_SCALARS = (str, int, float, bool)


def misfit(config: GinConfig, key: BindingKey) -> str | None:
    """Returns a parameter's declared type as text if the value bound to it is certainly of another type.

    Args:
      config: the parsed config.
      key: the binding of a parameter, which may refer to macros.

    Returns:
      The type; None if the value fits, or nothing is known about it.
    """
    hint, default = _declared(config, key)
    value = config.value(config.owner(key))
    if hint is None or (value is None and default is None):
        return None
    return None if _fits(value, hint) else _shown(hint)


def is_scalar_as_declared(config: GinConfig, key: BindingKey, value: Any) -> bool:
    """Returns whether a string or a number is of the very type that its parameter is declared to have."""
    hint, _ = _declared(config, key)
    return type(value) in _SCALARS and type(value) in (hint, *typing.get_args(hint))


def takes_none(key: BindingKey) -> bool:
    """Returns whether T5X takes None for a parameter in some run, which its annotation may leave out."""
    known = parameters_of(key.selector).get(key.parameter)
    return known is not None and known.domain.misfit(None, lambda _: None) is None


def _declared(config: GinConfig, key: BindingKey) -> tuple[Any, Any]:
    """Returns the type hint and the default of a parameter; the hint is None if it cannot be read."""
    called = _object(config, key.selector)
    try:
        default = inspect.signature(called).parameters[key.parameter].default
    except (KeyError, TypeError, ValueError):  # the parameter does not exist, or the code is native
        return None, None
    owners: list[Any] = [called]
    if isinstance(called, type):
        owners = [*called.__mro__, inspect.unwrap(vars(called).get("__init__", called))]
    for owner in owners:
        hint = getattr(owner, "__annotations__", {}).get(key.parameter)
        if isinstance(hint, str):
            try:
                return eval(hint, {}, _HintNames(owner.__module__)), default
            except Exception:  # a name is not defined, or is defined in several modules
                return None, default
        if hint is not None:
            return hint, default
    return None, default


class _HintNames(dict[str, Any]):
    """The names in a type hint: from its module, or from its package if only a type checker imports them."""

    def __init__(self, module: str) -> None:
        super().__init__({**vars(builtins), **vars(typing), **vars(sys.modules[module])})
        self._package = module.partition(".")[0]

    def __missing__(self, name: str) -> Any:
        modules = [m for key, m in list(sys.modules.items()) if key.partition(".")[0] == self._package]
        found = {id(vars(module)[name]): vars(module)[name] for module in modules if name in vars(module)}
        if len(found) != 1:
            raise KeyError(name)
        return next(iter(found.values()))


def _object(config: GinConfig, selector: str) -> Any:
    """Returns the object that a selector names in the imported modules, or None if they have no such name."""
    if selector == config.entry:
        selector = ".".join(ENTRY_POINTS[config.mode])
    module, _, name = selector.rpartition(".")
    found: Any = getattr(sys.modules.get(module), name, None)
    return inspect.unwrap(found)


def _fits(value: Any, hint: Any) -> bool:
    if isinstance(value, gin.config.ConfigurableReference):
        return _reference_fits(value, hint)
    if hint is Any or isinstance(hint, (typing.TypeVar, str)):
        return True
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is typing.Literal:
        return value in parts
    kind = origin or hint
    if kind in (None, type(None)):
        return value is None
    if not isinstance(kind, type):
        return True
    if value is None:
        return kind is object
    if isinstance(value, bool) and kind in (int, float):
        return False
    if kind is float:
        return isinstance(value, (int, float))
    if kind in _SCALARS:
        return isinstance(value, kind)
    if isinstance(value, str) and issubclass(kind, collections.abc.Iterable) and not _is_protocol(kind):
        return False
    if issubclass(kind, collections.abc.Mapping):
        return isinstance(value, collections.abc.Mapping)
    if issubclass(kind, collections.abc.Iterable) and kind.__module__ in ("builtins", "collections.abc"):
        return isinstance(value, (list, tuple, set))
    if kind.__module__.partition(".")[0] in ("jax", "numpy", "jaxtyping"):
        return True  # a string can name a type or an array
    return isinstance(value, kind) if not _is_protocol(kind) else callable(value)


def _reference_fits(value: Any, hint: Any) -> bool:
    """Tells whether a reference may yield the declared type; only a class that is certainly different does not."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_reference_fits(value, part) for part in parts)
    kind = origin or hint
    if value.selector in ("gin.macro", "gin.constant") or not isinstance(kind, type):
        return True
    if not value.evaluate:
        return _is_protocol(kind) or (kind not in _SCALARS and not issubclass(kind, collections.abc.Mapping))
    made = inspect.unwrap(value.configurable.wrapped)
    if _is_protocol(kind):
        return not isinstance(made, type) or _is_called(made) or not _is_called(kind)
    return not isinstance(made, type) or issubclass(made, kind)


def _is_called(kind: type) -> bool:
    """Tells whether objects of a class can be called."""
    return any("__call__" in vars(base) for base in kind.__mro__)


def _is_protocol(kind: type) -> bool:
    return bool(getattr(kind, "_is_protocol", False)) or kind.__name__ == "Callable"


def _shown(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and typing.get_origin(hint) is None else str(hint)
    return text.replace("typing.", "").replace("collections.abc.", "").replace("NoneType", "None")
