"""What Gin has bound and how it reads files: it has no public way to walk the one, or to take back the other."""

from __future__ import annotations

from collections.abc import Callable, MutableSequence
from typing import Any

from gin import config


def bound_values() -> dict[tuple[str, str], dict[str, Any]]:
    """Returns Gin's own table: parameters with their values, by scope and selector."""
    table: dict[tuple[str, str], dict[str, Any]] = config._CONFIG
    return table


def file_readers() -> MutableSequence[tuple[Callable[[str], Any], Callable[[str], bool]]]:
    """Returns Gin's own list of readers, each with what says whether it reads a name."""
    readers: list[tuple[Callable[[str], Any], Callable[[str], bool]]] = config._FILE_READERS
    return readers
