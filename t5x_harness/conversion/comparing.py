"""A checkpoint's arrays against those of the network that it is said to be of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from t5x_harness.conversion.errors import ArraysDisagree


def require_same(
    what: str, found: Mapping[str, tuple[int, ...]], expected: Iterable[tuple[str, tuple[int, ...]]], fix: str
) -> None:
    """Compares names and shapes.

    Args:
      what: the first line of the message.
      found: the shapes of the checkpoint's arrays by name.
      expected: names and shapes of the network's.
      fix: the last line of the message.

    Raises:
      ArraysDisagree: an array is missing, unexpected, or of another shape; each is named.
    """
    wanted = dict(expected)
    missing = [(name, shape) for name, shape in wanted.items() if name not in found]
    unexpected = [(name, shape) for name, shape in sorted(found.items()) if name not in wanted]
    reshaped = [(n, found[n], shape) for n, shape in wanted.items() if n in found and found[n] != shape]
    if missing or unexpected or reshaped:
        raise ArraysDisagree(what, missing, unexpected, reshaped, fix)
