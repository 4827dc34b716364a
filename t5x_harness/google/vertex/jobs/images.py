"""Container images by the commands of this machine that stand for them, and commands as containers compose them."""

from __future__ import annotations

import dataclasses
import fnmatch
import shlex
from collections.abc import Mapping, Sequence

__all__ = ["Image", "ImageUnknown", "find_image"]

_T5X, _EXECUTORS = "*t5x*", "*/vertex-ai/training/*"


class ImageUnknown(Exception):
    """No local command stands for an image; the message says how to name one."""


@dataclasses.dataclass(frozen=True)
class Image:
    """What stands for a container image.

    Attributes:
      uri: of the image.
      entry_point: the words that an image's ENTRYPOINT would be; empty for an image that has none.
    """

    uri: str
    entry_point: tuple[str, ...]

    @property
    def is_t5x(self) -> bool:
        """Whether T5X is what it runs by itself."""
        return self.entry_point[1:3] == ("-m", "t5x.main")

    def command(self, command: Sequence[str], args: Sequence[str]) -> list[str]:
        """The words of a container: ``command`` in the place of the image's entry point, then ``args``.

        Raises:
          ImageUnknown: there is nothing to run.
        """
        words = [*(command or self.entry_point), *args]
        if not words:
            raise ImageUnknown(
                f"the image {self.uri} has no entry point here, and container_spec has neither command nor args: "
                "give one of them, or an entry point in the map images"
            )
        return words


def find_image(uri: str, images: Mapping[str, str]) -> Image:
    """What stands for an image.

    Args:
      uri: of the image.
      images: the user's map: globs for URIs, each with a command line; an empty one for an image without entry point.
        The first glob that fits counts.

    Raises:
      ImageUnknown: none fits.
    """
    for glob, line in images.items():
        if fnmatch.fnmatchcase(uri, glob):
            return Image(uri, tuple(shlex.split(line)))
    if fnmatch.fnmatchcase(uri, _EXECUTORS):  # Google's own, which have no entry point and run Python packages
        return Image(uri, ())
    if fnmatch.fnmatchcase(uri.rpartition("/")[2], _T5X):  # by its own name: a project may be called so as well
        return Image(uri, ("python", "-m", "t5x.main"))
    known = ", ".join(repr(glob) for glob in (*images, _EXECUTORS))
    raise ImageUnknown(
        f"no local command stands for the image {uri}, and containers are not run here. The map images has {known}, "
        f"and images whose own names are like {_T5X!r} run T5X: add a glob for the image and the command line that its "
        f"entry point is, such as {{{_glob(uri)!r}: 'python -m trainer.task'}}, or an empty one if the job's spec has "
        "a command"
    )


def _glob(uri: str) -> str:
    """A glob for all versions of an image."""
    name = uri.partition("@")[0]
    head, separator, last = name.rpartition("/")
    return f"{head}{separator}{last.partition(':')[0]}*"
