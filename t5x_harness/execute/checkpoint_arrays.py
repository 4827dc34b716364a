"""The arrays of a stand-in for a checkpoint that the config transforms while it restores it.

A config that renames, drops or rebuilds parts of a checkpoint reads them by their names in the checkpoint, which differ
from the model's. A stand-in with the model's own names would be no input for its transformations.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from t5x_harness.plan.arrays import Leaf

_Shape = tuple[int, ...]
_LAYER = re.compile(r"/layers_\d+/")


class Shrunk:
    """The shapes that a full-size checkpoint's arrays have for the shrunk model.

    Args:
      full: the train state at full size.
      small: the shrunk one.
      sources: the names of its arrays in the checkpoint.
    """

    def __init__(self, full: Iterable[Leaf], small: Iterable[Leaf], sources: Mapping[str, str]) -> None:
        self._full = {leaf.path: leaf.shape for leaf in full}
        self._small = {leaf.path: leaf.shape for leaf in small}
        self._takers = {source: name for name, source in sources.items()}
        pairs = Counter(
            pair for name in self._full.keys() & self._small.keys() for pair in self._sizes(name) if pair[0] != pair[1]
        )
        self._sizes_anywhere = dict(pair for pair, _ in reversed(pairs.most_common()))

    def shape(self, name: str, stored: _Shape) -> _Shape:
        """Returns the shrunk shape of an array, given its name and its full-size shape in the checkpoint.

        An array with the model's own shape gets the shrunk model's. If the two shapes differ, a dimension in which they
        agree shrinks with the model's; any other shrinks as dimensions of its size do elsewhere in the model.
        """
        taker = self._takers.get(name, name)
        for like in (taker, _LAYER.sub("/layers_0/", taker)):
            if like in self._small and stored == self._full.get(like, stored):
                return self._small[like]  # of an optimizer's state, with as many dimensions as that has at this size
            sizes = self._sizes(like)
            if len(sizes) == len(stored):
                return tuple(
                    small if size == full else self._anywhere(size)
                    for size, (full, small) in zip(stored, sizes, strict=True)
                )
        return tuple(map(self._anywhere, stored))

    def _sizes(self, name: str) -> list[tuple[int, int]]:
        full, small = self._full.get(name, ()), self._small.get(name, ())
        return list(zip(full, small, strict=True)) if len(full) == len(small) else []

    def _anywhere(self, size: int) -> int:
        return self._sizes_anywhere.get(size, size)
