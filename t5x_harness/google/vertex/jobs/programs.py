"""What a server knows of the programs that jobs run: an object that is handed to it when it is started."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from t5x_harness.slices.pod import Pod
from t5x_harness.slices.slice import Slice

if TYPE_CHECKING:
    from t5x_harness.google.vertex.validation.rules import SpecRule


class Programs:
    """The programs that a server knows. This class knows none.

    The options of a server name the import path of an object of a derived class.
    """

    module: str = ""
    """A program, as ``python -m`` names it, for which interpreters can stand by."""

    libraries: Sequence[str] = ()
    """What such an interpreter imports while it waits."""

    def prepare(self) -> None:
        """Prepares an interpreter that stands by, once it has imported the libraries."""

    def spec_rules(self) -> Sequence[SpecRule]:
        """Returns rules for the specs of jobs, besides those of the service."""
        return ()

    def entry_point(self, _image: str, /) -> Sequence[str]:
        """Returns the words that an image of this name runs by itself; none if the image is not known."""
        return ()

    def with_modules(self, words: Sequence[str]) -> list[str]:
        """Returns the words of a container, with what only its image has replaced by what this machine has."""
        return list(words)

    def runs(self, _words: Sequence[str], /) -> bool:
        """Returns whether these words run one of the programs."""
        return False

    def folders(self) -> Mapping[str, Path]:
        """Returns the folders that images with such an entry point have in their working folder."""
        return {}

    def environment(
        self,
        base: Mapping[str, str],
        _words_are_theirs: bool,
        _slice: Slice | None,
        _pod: Pod | None,
        /,
    ) -> dict[str, str]:
        """Returns the variables of a process that runs one of the programs, is on a TPU, or is given variables.

        Args:
          base: the variables so far.
          _words_are_theirs: whether it runs one of the programs.
          _slice: the slice that it is on, if any.
          _pod: its place, if it is one host of several.
        """
        return dict(base)


def find_programs(path: str) -> Programs:
    """Imports the object at ``module:name``; an empty path stands for no programs."""
    if not path:
        return Programs()
    module, _, name = path.partition(":")
    found: Any = getattr(importlib.import_module(module), name)
    return cast(Programs, found)
