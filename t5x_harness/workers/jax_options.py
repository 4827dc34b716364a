"""Applies ``JAX_*`` variables, which JAX reads at its import, to a fork whose environment came after the import."""

from __future__ import annotations

import enum
import sys
from collections.abc import Mapping
from typing import Any


def apply_jax_environment(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Sets JAX's options to what they would be if JAX had been imported in another environment.

    Does nothing if JAX is not imported yet, because it will read the environment itself.

    Args:
      before: the environment that JAX was imported in.
      after: the environment that counts.

    Raises:
      RuntimeError: a variable that JAX has read is gone, and the option's default is unknown.
      ValueError: a variable's text does not fit the option's type.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return
    options: Mapping[str, Any] = jax.config.values
    for name in sorted(n for n in before.keys() | after.keys() if n.startswith("JAX_")):
        option = name.lower()
        if option not in options or before.get(name) == after.get(name):
            continue
        if name not in after:
            raise RuntimeError(
                f"{name} cannot be unset for this run: JAX read it ({before[name]!r}) when the worker process imported "
                "it. Unset it before the session starts."
            )
        jax.config.update(option, _parse(name, after[name], options[option]))


def _parse(name: str, text: str, current: Any) -> Any:
    try:
        if isinstance(current, bool):
            return _parse_bool(text)
        if isinstance(current, enum.Enum):
            return type(current)[text]
        if isinstance(current, int | float):
            return type(current)(text)
    except (KeyError, ValueError):
        raise ValueError(f"{name}={text!r}: JAX expects {type(current).__name__} here") from None
    return text


def _parse_bool(text: str) -> bool:
    if text.lower() in ("y", "yes", "t", "true", "on", "1"):
        return True
    if text.lower() in ("n", "no", "f", "false", "off", "0"):
        return False
    raise ValueError(text)
