"""What a conversion is asked for, and what it reports."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator

from t5x_harness.system.decode import JsonValue

SHARD_BYTES = 5_000_000_000
"""The most data of a file, unless another size is asked for."""

TOLERANCE = 1e-4
"""Of logits, relative to the largest of them where that is above 1."""


class Form(enum.StrEnum):
    """What a checkpoint is converted to.

    ``TRANSFORMERS``: a folder that ``from_pretrained`` loads.
    ``SAFETENSORS``: the parameters alone, under T5X's names, of whatever network.
    ``T5X``: a checkpoint that T5X restores.
    """

    TRANSFORMERS = "transformers"
    SAFETENSORS = "safetensors"
    T5X = "t5x"


@dataclasses.dataclass(frozen=True)
class Agreement(JsonValue):
    """How two models agree.

    Attributes:
      logits: how many were compared.
      difference: the largest difference between two of them.
      largest: the largest of them, without its sign.
      same_outputs: whether greedy decoding gives the same tokens.
      outputs: how many tokens it gave.
    """

    logits: int
    difference: float
    largest: float
    same_outputs: bool
    outputs: int

    @property
    def holds(self) -> bool:
        """Whether the models compute alike."""
        return self.same_outputs and self.difference <= TOLERANCE * max(1.0, self.largest)

    def __str__(self) -> str:
        greedy = "are the same" if self.same_outputs else "differ"
        return (
            f"logits of T5X and transformers differ by {self.difference:.2g} at most, of {self.largest:.3g} "
            f"({self.logits} compared); greedy outputs {greedy} ({self.outputs} tokens)"
        )


@dataclasses.dataclass(frozen=True)
class Conversion(JsonValue):
    """What a conversion made.

    Attributes:
      source: the checkpoint that was read.
      layout: how it lies.
      to: what was written.
      output: the folder that holds it.
      step: the train step of the checkpoint; None where it is not known.
      model: what it is, in words: the sizes that were read from the arrays.
      model_type: of transformers; empty for another form.
      arrays: how many there are.
      num_bytes: the size of their data.
      dtypes: their element types.
      files: names in ``output``.
      config: the Gin files that settings were read from; empty where there were none.
      left_out: what of the source is not in the output, in words.
      assumptions: what was taken for granted, in words.
      warnings: what a user of the output has to know, in words.
      agreement: how the output computes what T5X does; None where that was not checked.
    """

    source: str
    layout: str
    to: Form
    output: str
    step: int | None
    model: str
    model_type: str
    arrays: int
    num_bytes: int
    dtypes: tuple[str, ...]
    files: tuple[str, ...]
    config: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    agreement: Agreement | None = None


@dataclasses.dataclass(frozen=True)
class ConversionRequest:
    """What a user asks for.

    Attributes:
      checkpoint: a checkpoint, a folder of several (the latest counts), or a folder of transformers or safetensors.
      to: the form to write.
      output: the folder to write; a checkpoint of T5X goes into it as ``checkpoint_<step>``.
      gin_files: the config of the checkpoint's run; none for the ``config.gin`` beside the checkpoint, if there is one.
      bindings: Gin statements parsed after them.
      search_paths: folders where they are looked up.
      vocabulary: path of the SentencePiece model, or ``bytes``; None for the config's.
      extra_ids: sentinels that SeqIO adds to that model's own pieces.
      model_type: of transformers; None to choose.
      dtype: element type to write floats in; None for each as it is.
      step: the train step of the checkpoint to write; None for that of the source.
      scanned: whether T5X is to scan the layers of a umT5; None for as before.
      shard_bytes: the most data of a file.
      check: compare what the output computes with what T5X does.
    """

    checkpoint: str
    to: Form
    output: str
    gin_files: tuple[str, ...] = ()
    bindings: tuple[str, ...] = ()
    search_paths: tuple[str, ...] = ()
    vocabulary: str | None = None
    extra_ids: int = 0
    model_type: str | None = None
    dtype: str | None = None
    step: int | None = None
    scanned: bool | None = None
    shard_bytes: int = SHARD_BYTES
    check: bool = False


def describe(conversion: Conversion) -> Iterator[str]:
    """Yields the lines of a report for people."""
    yield f"{conversion.source} ({conversion.layout}) -> {conversion.output} ({conversion.to})"
    if conversion.model:
        kind = f"{conversion.model_type}: " if conversion.model_type else ""
        yield f"  model: {kind}{conversion.model}"
    yield f"  arrays: {conversion.arrays}, {conversion.num_bytes:,} bytes of {' and '.join(conversion.dtypes)}"
    if conversion.config:
        yield f"  config: {', '.join(conversion.config)}"
    yield f"  step: {'not known' if conversion.step is None else conversion.step}"
    if conversion.files:
        yield f"  files: {', '.join(conversion.files)}"
    if conversion.agreement is not None:
        yield f"  checked: {conversion.agreement}"
    for title, lines in (
        ("taken for granted", conversion.assumptions),
        ("left out", conversion.left_out),
        ("note", conversion.warnings),
    ):
        for line in lines:
            yield f"  {title}: {line}"
