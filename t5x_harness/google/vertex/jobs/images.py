"""Commands of this machine that stand for container images, composed as containers compose theirs."""

from __future__ import annotations

import dataclasses
import fnmatch
import shlex
from collections.abc import Callable, Mapping, Sequence

from t5x_harness.google.product import PRODUCT

_EXECUTORS = "*/vertex-ai/training/*"
# Google's reducers: no process of a job asks them here, and the service ends them with the job.
_REDUCERS, _NOTHING = "*/vertex-ai-restricted/training/reductionserver*", ("sleep", "infinity")


class ImageUnknown(Exception):
    """No local command stands for an image; the message says how to name one."""


@dataclasses.dataclass(frozen=True)
class ImageStandIn:
    """What stands for a container image.

    Attributes:
      entry_point: the words of the image's ENTRYPOINT; empty for an image that has none.
      known: whether it is known what is in the image; otherwise only the command of a job's spec is run.
    """

    uri: str
    entry_point: tuple[str, ...]
    known: bool = True

    def command(self, command: Sequence[str], args: Sequence[str]) -> list[str]:
        """Returns the words of a container: ``command``, or the entry point, then ``args``.

        Raises:
          ImageUnknown: there are no words, or the entry point is not known.
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
        """Says how a container with a command differs from the service's; empty if there is nothing to say."""
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
    """Finds what stands for an image. An unknown image has no entry point.

    Args:
      images: the user's map from globs for URIs to command lines; an empty line is for an image without an entry point.
        The first glob that fits counts.
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
