"""Compares a checkpoint's arrays with those of its network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from t5x_harness.conversion.errors import ConversionError

_SHOWN = 12


def require_same(
    what: str, found: Mapping[str, tuple[int, ...]], expected: Iterable[tuple[str, tuple[int, ...]]], fix: str
) -> None:
    """Compares names and shapes.

    Args:
      what: the first line of the message.
      found: the shapes of the checkpoint's arrays by name.
      expected: the names and shapes of the network's arrays.
      fix: the smallest fix.

    Raises:
      ConversionError: an array is missing, unexpected, or of another shape; each is named.
    """
    wanted = dict(expected)
    missing = [f"{name} {list(shape)}" for name, shape in wanted.items() if name not in found]
    unexpected = [f"{name} {list(shape)}" for name, shape in sorted(found.items()) if name not in wanted]
    both = ((name, found[name], shape) for name, shape in wanted.items() if name in found)
    reshaped = [f"{name} is {list(has)}, expected {list(wants)}" for name, has, wants in both if has != wants]
    if missing or unexpected or reshaped:
        lists = {"missing": missing, "unexpected": unexpected, "of another shape": reshaped}
        lines = [line for title, names in lists.items() for line in _listed(title, names)]
        raise ConversionError("\n  ".join([what, *lines, f"fix: {fix}"]))


def _listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Yields a heading with the number of lines, and the first of them."""
    if lines:
        yield f"{title}: {len(lines)}"
        yield from (f"  {line}" for line in lines[:_SHOWN])
    if len(lines) > _SHOWN:
        yield f"  and {len(lines) - _SHOWN} more"
