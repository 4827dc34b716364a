"""The arithmetic of shrinking: how small each number of a config, and each array of its checkpoint, may become.

Every function preserves what the mesh and T5X check: any divisor of the original divides the result, and a value at or
below its target does not change.
"""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from t5x_harness.plan.arrays import Leaf

DEVICES = 8
"""The most devices that a run executes on: as many as Vertex AI's smallest TPU slices have. All share this machine's
cores, and each further one makes a step slower."""

LAYERS = 1
"""The number of layers in a stack. The plan traces all layers; here, each extra one costs tracing and compiling."""

LONGEST = 64
"""The number of tokens in the longest feature."""

SHORTEST = 16
"""The number of tokens that any feature keeps: with fewer, span corruption has no room for its sentinels."""

STEPS = 4
"""The number of train steps: two periods of two, with a checkpoint and an eval in the middle and at the end."""

FEWEST_EXAMPLES = 8
"""The number of examples that any batch keeps, so that packing has something to pack."""

LARGE_VOCABULARY = 65_536

_LAYER = re.compile(r"/layers_\d+/")


@dataclasses.dataclass(frozen=True)
class Axes:
    """The numbers of devices along the mesh's axes.

    Attributes:
      data: the positions along the data axis of the slice's mesh, which determine the original's divisors.
      model: devices along the model axis, the same wherever the run executes.
      executed: positions along the data axis of the mesh that the run executes on, a divisor of ``data``; None for all.
    """

    data: int
    model: int
    executed: int | None = None

    @property
    def positions(self) -> int:
        """The number of data positions that the run executes on."""
        return self.data if self.executed is None else self.executed

    def dividing(self, value: int) -> int:
        """Returns the number by which a smaller value must be divisible on the executed mesh."""
        if value % (self.data * self.model) == 0:
            return self.positions * self.model
        return math.lcm(self.positions if value % self.data == 0 else 1, self.model if value % self.model == 0 else 1)


def _multiple_of(factor: int, at_least: int) -> int:
    return factor * max(1, math.ceil(at_least / factor))


def small_axis(data: int, model: int) -> int:
    """Returns how many data positions to execute on: as many as fit on :data:`DEVICES`, but at least 2 if possible.

    Args:
      data: positions along the data axis of the slice's mesh.
      model: devices along the model axis, all of which are kept.
    """
    divisors = [n for n in range(min(data, 2), data + 1) if data % n == 0]
    return max((n for n in divisors if n * model <= DEVICES), default=divisors[0])


def small_heads(heads: int, axes: Axes, kv_heads: int = 1) -> int:
    """Returns at least 2 attention heads, divisible by the model axis and by the kv heads if the original was."""
    factor = math.lcm(axes.model if heads % axes.model == 0 else 1, kv_heads if heads % kv_heads == 0 else 1)
    return min(heads, _multiple_of(factor, 2))


def small_width(width: int, target: int, axes: Axes, multiple_of: int = 1) -> int:
    """Returns a model dimension near ``target`` that keeps the original's divisors.

    Args:
      width: the original dimension.
      target: the size to aim at.
      axes: the mesh; two-dimensional parameter sharding also cuts widths along the data axis.
      multiple_of: another number that must divide the result, if it relates to another width.
    """
    factor = math.lcm(axes.dividing(width), multiple_of)
    return min(width, _multiple_of(factor, target))


def small_lengths(lengths: Mapping[str, int]) -> dict[str, int]:
    """Scales feature lengths together, so that the longest has 64 tokens and none has fewer than 16."""
    longest = max(lengths.values(), default=0)
    if longest <= LONGEST:
        return dict(lengths)
    factor = LONGEST / longest
    return {name: min(n, max(SHORTEST, math.ceil(n * factor))) for name, n in lengths.items()}


def small_batch(batch: int, axes: Axes, microbatches: int = 1) -> int:
    """Returns the smallest batch, of 8 examples or more, that divides among positions and microbatches as before."""
    if batch % axes.data or batch % microbatches:
        return batch  # the plan refuses such a batch, and a smaller one must not hide that
    each_full = (batch // microbatches) % axes.data == 0
    factor = axes.positions * microbatches if each_full else math.lcm(axes.positions, microbatches)
    return min(batch, _multiple_of(factor, FEWEST_EXAMPLES))


def small_vocabulary(size: int, real: int, axes: Axes) -> int:
    """Returns the embedding's rows: as many as before unless they are many and the vocabulary needs far fewer.

    Args:
      size: the number of rows of the original.
      real: the number of ids that the vocabularies can produce.
      axes: the mesh.
    """
    if size <= LARGE_VOCABULARY:
        return size
    return min(size, _multiple_of(math.lcm(128, axes.dividing(size)), real))


def steps_in_proportion(value: int, before: int, after: int) -> int:
    """Scales a schedule's number of steps like the train steps; a positive number remains at least 1."""
    return value if value <= 0 or before <= 0 else max(1, value * after // before)


class Shrunk:
    """The shapes that a full-size checkpoint's arrays have for the shrunk model.

    A config that renames, drops or rebuilds parts of a checkpoint while restoring it reads them by their names in the
    checkpoint, which differ from the model's. A stand-in with the model's own names would be no input for its
    transformations.

    Args:
      full: the train state at full size.
      small: the shrunk train state.
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

    def shape(self, name: str, stored: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shrunk shape of an array, given its name and its full-size shape in the checkpoint.

        An array with the model's own shape gets the shrunk model's. If the two shapes differ, a dimension in which they
        agree shrinks with the model's; any other shrinks as dimensions of its size do elsewhere in the model.
        """
        taker = self._takers.get(name, name)
        for like in (taker, _LAYER.sub("/layers_0/", taker)):
            if like in self._small and stored == self._full.get(like, stored):
                return self._small[like]  # of an optimizer's state, with its number of dimensions at this size
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
