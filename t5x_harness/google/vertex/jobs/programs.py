"""The commands of this machine that stand in for container images in jobs, and the programs that a server knows."""

from __future__ import annotations

import dataclasses
import fnmatch
import importlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from t5x_harness.google.product import PRODUCT
from t5x_harness.slices.pod import Pod
from t5x_harness.slices.slice import Slice

if TYPE_CHECKING:
    from t5x_harness.google.vertex.validation.rules import SpecRule

_EXECUTORS = "*/vertex-ai/training/*"
# Google's reducers: no process of a job uses them here, and the service ends them with the job.
_REDUCERS, _NOTHING = "*/vertex-ai-restricted/training/reductionserver*", ("sleep", "infinity")


class ImageUnknown(Exception):
    """No local command stands in for an image; the message says how to name one."""


@dataclasses.dataclass(frozen=True)
class ImageStandIn:
    """The local stand-in for a container image.

    Attributes:
      entry_point: the words of the image's ENTRYPOINT; empty for an image that has none.
      known: whether the contents of the image are known; otherwise only the command of a job's spec is run.
    """

    uri: str
    entry_point: tuple[str, ...]
    known: bool = True

    def command(self, command: Sequence[str], args: Sequence[str]) -> list[str]:
        """Returns the words of a container: ``command``, or the entry point, then ``args``.

        It raises ImageUnknown if there are no words, or if the entry point is not known.
        """
        words = [*(command or self.entry_point), *args]
        if not command and not self.known:
            head, separator, last = self.uri.partition("@")[0].rpartition("/")
            glob = f"{head}{separator}{last.partition(':')[0]}*"  # for all versions of the image
            raise ImageUnknown(
                f"no local command stands for the image {self.uri}, whose entry point is not known, and containers are "
                "not run here. Give container_spec a command, or name the entry point in the map images "
                f"(--vertex-image): {{{glob!r}: 'python -m trainer.task'}}"
            )
        if not words:
            raise ImageUnknown(
                f"the image {self.uri} has no entry point here, and container_spec has neither command nor args: "
                "give one of them, or an entry point in the map images"
            )
        return words

    def note(self, command: Sequence[str]) -> str:
        """Returns how a container with a command differs from the service's; empty if it does not."""
        if self.entry_point == _NOTHING:
            return f"{self.uri} reduces nothing here: its replicas wait until the job ends"
        if not self.known:
            return (
                f"the image {self.uri} is not run: its command {command[0]!r} is looked for on this machine, with the "
                f"Python environment of {PRODUCT} in place of the image's"
            )
        return ""


def find_image(
    uri: str, images: Mapping[str, str], entry_point: Callable[[str], Sequence[str]] = lambda _: ()
) -> ImageStandIn:
    """Finds the stand-in for an image. An unknown image has no entry point.

    Args:
      images: the user's map from globs for URIs to command lines; an empty line is for an image without an entry point.
        The first glob that matches counts.
      entry_point: returns the entry point of an image that the map does not name; no words if it is not known.
    """
    for glob, line in images.items():
        if fnmatch.fnmatchcase(uri, glob):
            return ImageStandIn(uri, tuple(shlex.split(line)))
    if fnmatch.fnmatchcase(uri, _EXECUTORS):  # Google's own, which have no entry point and run Python packages
        return ImageStandIn(uri, ())
    if fnmatch.fnmatchcase(uri, _REDUCERS):
        return ImageStandIn(uri, _NOTHING)
    words = tuple(entry_point(uri))
    return ImageStandIn(uri, words, known=bool(words))


class Programs:
    """The programs that a server knows. This class knows none.

    The options of a server name the import path of an object of a derived class.
    """

    module: str = ""
    """The program, as a module for ``python -m``, for which interpreters can stand by."""

    libraries: Sequence[str] = ()
    """The libraries that such an interpreter imports while it waits."""

    def spec_rules(self) -> Sequence[SpecRule]:
        """Returns rules for the specs of jobs, in addition to the service's rules."""
        return ()

    def entry_point(self, _image: str, /) -> Sequence[str]:
        """Returns the words that an image with this name runs by default; none if the image is not known."""
        return ()

    def with_modules(self, words: Sequence[str]) -> list[str]:
        """Returns a container's words, in which this machine's equivalents replace anything that only the image has."""
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
        """Returns the variables of a process, including those that the programs or a TPU need.

        Args:
          base: the variables that are already set.
          _words_are_theirs: whether the process runs one of the programs.
          _slice: the slice on which it runs, if any.
          _pod: its place, if it is one host of several.
        """
        return dict(base)


def find_programs(path: str) -> Programs:
    """Imports the object at ``module:name``; an empty path means no programs."""
    if not path:
        return Programs()
    module, _, name = path.partition(":")
    return cast(Programs, getattr(importlib.import_module(module), name))
