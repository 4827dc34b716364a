"""Container images by the commands of this machine that stand for them, and commands as containers compose them."""

from __future__ import annotations

import dataclasses
import fnmatch
import shlex
from collections.abc import Callable, Mapping, Sequence

from t5x_harness.google.product import PRODUCT

_EXECUTORS = "*/vertex-ai/training/*"
# Google's reducers: nothing of a job asks them here, and the service ends them with the job.
_REDUCERS, _NOTHING = "*/vertex-ai-restricted/training/reductionserver*", ("sleep", "infinity")


class ImageUnknown(Exception):
    """No local command stands for an image; the message says how to name one."""


@dataclasses.dataclass(frozen=True)
class Image:
    """What stands for a container image.

    Attributes:
      entry_point: the words that an image's ENTRYPOINT would be; empty for an image that has none.
      known: whether anybody has said what is in it; else only the command of a job's spec is run.
    """

    uri: str
    entry_point: tuple[str, ...]
    known: bool = True

    def command(self, command: Sequence[str], args: Sequence[str]) -> list[str]:
        """Returns the words of a container: ``command``, or the entry point, then ``args``.

        Raises ImageUnknown for none.
        """
        words = [*(command or self.entry_point), *args]
        if not command and not self.known:
            raise ImageUnknown(_how_to_name(self.uri))
        if not words:
            raise ImageUnknown(
                f"the image {self.uri} has no entry point here, and container_spec has neither command nor args: "
                "give one of them, or an entry point in the map images"
            )
        return words

    def note(self, command: Sequence[str]) -> str:
        """Says in what a container with a command is not here what it is in the service.

        Empty if that is well known.
        """
        if self.entry_point == _NOTHING:
            return f"{self.uri} reduces nothing here: its replicas wait until the job ends"
        if not self.known:
            return (
                f"the image {self.uri} is not run: its command {command[0]!r} is looked for on this machine, with the "
                f"Python environment of {PRODUCT} in the place of what the image has"
            )
        return ""


def find_image(
    uri: str, images: Mapping[str, str], entry_point: Callable[[str], Sequence[str]] = lambda _: ()
) -> Image:
    """Returns what stands for an image; one that nothing is known of has no entry point.

    Args:
      images: the user's map: globs for URIs, each with a command line; an empty one for an image without entry point.
        The first glob that fits counts.
      entry_point: that an image of a name has which the map does not name; empty words for one that is not known.
    """
    for glob, line in images.items():
        if fnmatch.fnmatchcase(uri, glob):
            return Image(uri, tuple(shlex.split(line)))
    if fnmatch.fnmatchcase(uri, _EXECUTORS):  # Google's own, which have no entry point and run Python packages
        return Image(uri, ())
    if fnmatch.fnmatchcase(uri, _REDUCERS):
        return Image(uri, _NOTHING)
    words = tuple(entry_point(uri))
    return Image(uri, words, known=bool(words))


def _how_to_name(uri: str) -> str:
    return (
        f"no local command stands for the image {uri}, whose entry point is not known, and containers are not run "
        "here. Give container_spec a command, or name the entry point in the map images (--vertex-image): "
        f"{{{_glob(uri)!r}: 'python -m trainer.task'}}"
    )


def _glob(uri: str) -> str:
    """Returns a glob for all versions of an image."""
    name = uri.partition("@")[0]
    head, separator, last = name.rpartition("/")
    return f"{head}{separator}{last.partition(':')[0]}*"
