"""What crosses between the processes of the aot stage: what there is to compile, and what is known before it is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from t5x_harness.spec import Location
from t5x_harness.system.decode import JsonValue

TRAIN, EVAL, PREDICT, SCORE = "train", "train_eval", "predict", "score"
"""The kinds of programs."""


@dataclasses.dataclass(frozen=True)
class ProgramSpec(JsonValue):
    """A program of a run, as its config describes it.

    Attributes:
      name: ``train``, ``train_eval``, ``predict`` or ``score``.
      role: the dataset that it takes batches of, as the entry point's parameter: ``train_dataset_cfg``.
      method: of the model, for predicting and scoring.
      shapes: of the model's inputs, by feature, for all devices together.
      types: of the model's inputs, by feature.
      batch: the binding that its batch size comes from, as a :class:`Knob` names it; empty where there is none.
    """

    name: str
    role: str
    method: str
    shapes: Mapping[str, tuple[int, ...]]
    types: Mapping[str, str]
    batch: str = ""

    @property
    def longest_loop(self) -> int:
        """How often a loop runs at the most that ends when every example has: the tokens that are decoded."""
        return max((shape[1] for name, shape in self.shapes.items() if name.startswith("decoder_input")), default=1)

    @property
    def tokens(self) -> int:
        """Tokens of a step, padding included: of the longest input and the longest target of each example."""
        sizes = {name: math.prod(shape) for name, shape in self.shapes.items()}
        inputs = [size for name, size in sizes.items() if name.startswith("encoder_input")]
        targets = [size for name, size in sizes.items() if name.startswith("decoder_target")]
        return max(inputs, default=0) + max(targets, default=0)


@dataclasses.dataclass(frozen=True)
class LayerStack:
    """A stack of layers: the binding that says how many, and how many that is."""

    binding: str
    layers: int


@dataclasses.dataclass(frozen=True)
class Knob:
    """A binding that decides how much memory a run takes.

    Attributes:
      binding: its short name, as the command line takes it.
      value: as gin text.
      location: its line; None for a value that no line binds.
    """

    binding: str
    value: str
    location: Location | None


@dataclasses.dataclass(frozen=True)
class AotRun(JsonValue):
    """A planned run, as the aot stage sees it.

    Attributes:
      programs: those that its job compiles.
      stacks: the stacks of layers that its config binds the depth of.
      scanned: whether layers are one loop, whose program does not grow with their number.
      state_bytes: of the train state on each device, without padding; those of the parameters alone under ``predict``
        and ``score``.
      steps: to train; None where that is not known or nothing is trained.
      knobs: what decides how much memory it takes, by what it is: ``batch_size``, ``num_microbatches``,
        ``num_partitions``, ``model_parallel_submesh``, ``remat_policy``.
      not_checked: programs that are left out, and why.
      mesh: devices by axis.
      cut_bytes: of the train state and of the parameters alone, by what ``state_bytes`` has: bytes of all arrays that
        are cut along the same axes, which stand with ``+`` between them.
      axes: sizes on a device of the parameters' logical axes.
    """

    programs: tuple[ProgramSpec, ...]
    stacks: tuple[LayerStack, ...]
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
    """What is known of a program before it is compiled.

    Attributes:
      fingerprint: equal ones are compiled to the same; see :func:`t5x_harness.aot.compiler.fingerprint`.
      operations: of the program as StableHLO: what the compiler's own memory grows with.
      mesh: devices by axis.
      devices: the ids of the mesh's devices in its order, flattened: one for each partition of the program.
      state_bytes: of the state that it is given, on each device and without padding.
    """

    fingerprint: str
    operations: int
    mesh: Mapping[str, int]
    devices: tuple[int, ...]
    state_bytes: int
