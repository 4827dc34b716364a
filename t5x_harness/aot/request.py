"""Values that pass between the processes of the aot stage: the programs to compile, and the facts known beforehand."""

import dataclasses
import math
from collections.abc import Iterable, Mapping

from t5x_harness.plan.arrays import Leaf
from t5x_harness.spec import Location
from t5x_harness.system.decode import JsonValue

TRAIN, EVAL, PREDICT, SCORE = "train", "train_eval", "predict", "score"
"""The kinds of programs."""

_HEADS, _KV, _HEADS_AND_KV = "heads", "kv", "joined_kv"
"""Logical axes of attention; networks whose parameters join heads and kv do not name kv alone."""


@dataclasses.dataclass(frozen=True)
class ProgramSpec(JsonValue):
    """A program of a run, as its config describes it.

    Attributes:
      name: the kind: ``train``, ``train_eval``, ``predict`` or ``score``.
      role: the dataset of its batches, named by the entry point's parameter, such as ``train_dataset_cfg``.
      method: the model's method, for predicting and scoring.
      shapes: the shapes of the model's inputs by feature, for all devices together.
      types: the types of the model's inputs by feature.
      batch: the binding of its batch size, as a :class:`Knob` names it; empty if nothing binds it.
    """

    name: str
    role: str
    method: str
    shapes: Mapping[str, tuple[int, ...]]
    types: Mapping[str, str]
    batch: str = ""

    @property
    def longest_loop(self) -> int:
        """The largest number of rounds of a loop that runs until every example has ended: the tokens to decode."""
        return max((shape[1] for name, shape in self.shapes.items() if name.startswith("decoder_input")), default=1)

    @property
    def tokens(self) -> int:
        """The tokens of a step with padding: the longest input and the longest target for each example."""
        sizes = {name: math.prod(shape) for name, shape in self.shapes.items()}
        inputs = [size for name, size in sizes.items() if name.startswith("encoder_input")]
        targets = [size for name, size in sizes.items() if name.startswith("decoder_target")]
        return max(inputs, default=0) + max(targets, default=0)


@dataclasses.dataclass(frozen=True)
class Knob:
    """A binding that decides how much memory a run takes.

    Attributes:
      binding: its short name, as the command line takes it.
      value: the value, as gin text.
      location: its line; None if no line binds it.
    """

    binding: str
    value: str
    location: Location | None


@dataclasses.dataclass(frozen=True)
class AotRun(JsonValue):
    """A planned run for the aot stage.

    Attributes:
      programs: the programs that its job compiles.
      stacks: the number of layers of each stack whose depth its config binds, by binding.
      scanned: whether layers are one loop, whose program does not grow with their number.
      state_bytes: the bytes of the train state on each device without padding, by program; ``predict`` and ``score``
        have only parameters.
      steps: the steps to train; None if the number is not known or nothing is trained.
      knobs: the bindings that decide how much memory it takes, by parameter: ``batch_size``, ``num_microbatches``,
        ``num_partitions``, ``model_parallel_submesh``, ``remat_policy``.
      not_checked: the programs that are left out, and the reasons.
      mesh: devices by axis.
      cut_bytes: for each program of ``state_bytes``, the bytes of all arrays that are partitioned along the same mesh
        axes, by these axes joined with ``+``.
      axes: the sizes of the parameters' logical axes on a device.
    """

    programs: tuple[ProgramSpec, ...]
    stacks: Mapping[str, int]
    scanned: bool
    state_bytes: Mapping[str, int]
    steps: int | None
    knobs: Mapping[str, Knob]
    not_checked: tuple[str, ...] = ()
    mesh: Mapping[str, int] = dataclasses.field(default_factory=dict)
    cut_bytes: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    axes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class LoweredProgram(JsonValue):
    """The facts about a program that are known before it is compiled.

    Attributes:
      fingerprint: a name for the result, the same for programs that compile to the same; see
        :func:`t5x_harness.aot.libtpu.fingerprint`.
      operations: the number of StableHLO operations, with which the compiler's own memory grows.
      mesh: devices by axis.
      state_bytes: the bytes of its train state or parameters on each device, without padding.
    """

    fingerprint: str
    operations: int
    mesh: Mapping[str, int]
    state_bytes: int


def axis_sizes(leaves: Iterable[Leaf], mesh: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Returns the sizes that the logical axes of parameters have on a device.

    Args:
      leaves: the leaves of the train state.
      mesh: devices by axis.
    """
    found: dict[str, set[int]] = {}
    for leaf in leaves:
        if leaf.path.startswith("target/"):
            for name, size in zip(leaf.names, leaf.device_shape(mesh), strict=False):
                if name:
                    found.setdefault(name, set()).add(size)
    joined, heads = found.get(_HEADS_AND_KV, set()), found.get(_HEADS, set())
    if _KV not in found and len(joined) == len(heads) == 1:
        (together,), (number,) = joined, heads
        if together % number == 0:
            found[_KV] = {together // number}
    return {name: tuple(sorted(sizes)) for name, sizes in found.items()}
