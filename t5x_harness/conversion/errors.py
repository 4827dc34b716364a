"""What a conversion fails with."""

from __future__ import annotations

from collections.abc import Sequence

_SHOWN = 12


class ConversionError(Exception):
    """A checkpoint cannot be converted; the message says what was read, what disagrees, and the smallest fix."""


class ArraysDisagree(ConversionError):
    """The arrays of a checkpoint are not those of the network that they are said to be.

    Args:
      what: names the checkpoint, and what it was compared with.
      missing: names of arrays that it lacks, each with the shape that it should have.
      unexpected: names of arrays that the network does not have, each with its shape.
      reshaped: names with the shape that was found and the one that is expected.
      fix: the smallest fix.
    """

    def __init__(
        self,
        what: str,
        missing: Sequence[tuple[str, tuple[int, ...]]] = (),
        unexpected: Sequence[tuple[str, tuple[int, ...]]] = (),
        reshaped: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]] = (),
        fix: str = "",
    ) -> None:
        self.missing, self.unexpected, self.reshaped = tuple(missing), tuple(unexpected), tuple(reshaped)
        lines = [
            *_listed("missing", [f"{name} {list(shape)}" for name, shape in missing]),
            *_listed("unexpected", [f"{name} {list(shape)}" for name, shape in unexpected]),
            *_listed("of another shape", [f"{n} is {list(has)}, expected {list(wants)}" for n, has, wants in reshaped]),
            *([f"fix: {fix}"] if fix else []),
        ]
        super().__init__("\n".join([what, *(f"  {line}" for line in lines)]))


def first_line(error: BaseException) -> str:
    """Returns what a library says, without what follows it."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _listed(title: str, lines: Sequence[str]) -> list[str]:
    """Returns a heading with the number of lines, and the first of them."""
    if not lines:
        return []
    more = [f"  and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return [f"{title}: {len(lines)}", *(f"  {line}" for line in lines[:_SHOWN]), *more]
