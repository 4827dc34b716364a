"""What the one who starts a server knows of the programs that jobs run; a module has it, which the options name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from t5x_harness.slices.pod import Pod
from t5x_harness.slices.slice import Slice


class Programs(Protocol):
    """A module with these names.

    Attributes:
      MODULE: the program, as ``python -m`` names it, for which interpreters can stand by.
      LIBRARIES: what such an interpreter imports while it waits.
    """

    MODULE: str
    LIBRARIES: Sequence[str]

    def prepare(self) -> None:
        """Prepares an interpreter that stands by, once it has imported the libraries."""

    def entry_point(self, image: str) -> Sequence[str]:
        """Returns the words that an image of this name runs by itself; empty for one that is not known."""

    def with_modules(self, words: Sequence[str]) -> list[str]:
        """Returns the words of a container, with what only its image has replaced by what this machine has."""

    def runs(self, words: Sequence[str]) -> bool:
        """Returns whether these words run one of the programs."""

    def folders(self) -> Mapping[str, Path]:
        """Returns the folders that images with such an entry point have in the one that they start in."""

    def environment(
        self, base: Mapping[str, str], words_are_theirs: bool, slice: Slice | None, pod: Pod | None
    ) -> dict[str, str]:
        """Returns the variables of a process that runs one of the programs, is on a TPU, or is given variables.

        Args:
          words_are_theirs: whether it runs one of the programs.
          slice: that it is on; None for none.
          pod: its place, if it is one host of several.
        """


def find_programs(module: str) -> Programs:
    """Imports what the options name."""
    found: Any = importlib.import_module(module)
    return cast(Programs, found)
