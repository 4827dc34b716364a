"""What a run receives when it starts: its environment, its folders, and what to make."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.workers import framing

Environment = Mapping[str, str | None]
"""Variables to add to the environment; None removes one."""


def environment(env: Environment) -> dict[str, str]:
    """Returns the environment of this process, updated with ``env``."""
    # One by one: pytest removes a variable of its own after each test, and another thread may start a run just then.
    merged = {**{name: os.environ.get(name) for name in list(os.environ)}, **env}
    return {name: value for name, value in merged.items() if value is not None}


def start_message(
    factory: str, argument: Mapping[str, Any], *, cwd: Path | str, env: Environment, python_path: Sequence[str]
) -> dict[str, Any]:
    """Checks and collects everything that a run needs to start.

    Raises:
      TypeError: the argument is not a JSON value.
      ValueError: the factory is not written as ``package.module:callable``.
    """
    module, colon, attribute = factory.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"a factory is written as package.module:callable, not {factory!r}")
    if found := framing.not_json(dict(argument), "argument"):
        raise TypeError(f"{factory} cannot be called with {found}: only JSON values can be sent to a run")
    return {
        "factory": factory,
        "argument": dict(argument),
        "cwd": os.path.abspath(cwd),
        "env": environment(env),
        "python_path": [os.path.abspath(folder) for folder in python_path],
    }
