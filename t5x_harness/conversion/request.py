"""The request for a conversion, and its report."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator

from t5x_harness.system.decode import JsonValue

SHARD_BYTES = 5_000_000_000
"""The default for the most data of a file."""

TOLERANCE = 1e-4
"""The tolerance for logits, relative to the largest of them if that is above 1."""


class Form(enum.StrEnum):
    """The target of a conversion.

    ``TRANSFORMERS``: a folder that ``from_pretrained`` loads.
    ``SAFETENSORS``: the parameters alone, under T5X's names, of any network.
    ``T5X``: a checkpoint that T5X restores.
    """

    TRANSFORMERS = "transformers"
    SAFETENSORS = "safetensors"
    T5X = "t5x"


@dataclasses.dataclass(frozen=True)
class Agreement(JsonValue):
    """The agreement of two models.

    Attributes:
      logits: the number of compared logits.
      difference: the largest difference between two logits.
      largest: the largest magnitude of a logit.
      same_outputs: whether greedy decoding gives the same tokens.
      outputs: the number of these tokens.
    """

    logits: int
    difference: float
    largest: float
    same_outputs: bool
    outputs: int

    @property
    def holds(self) -> bool:
        """Whether the models compute the same."""
        return self.same_outputs and self.difference <= TOLERANCE * max(1.0, self.largest)

    def __str__(self) -> str:
        greedy = "are the same" if self.same_outputs else "differ"
        return (
            f"logits of T5X and transformers differ by {self.difference:.2g} at most, of {self.largest:.3g} "
            f"({self.logits} compared); greedy outputs {greedy} ({self.outputs} tokens)"
        )


@dataclasses.dataclass(frozen=True)
class Conversion(JsonValue):
    """The result of a conversion.

    Attributes:
      source: the checkpoint that was read.
      layout: its layout, in words.
      to: the form that was written.
      output: the folder that was written.
      step: the train step of the checkpoint; None if it is not known.
      model: the sizes of the model, in words.
      model_type: the model type of transformers; empty for another form.
      arrays: the number of arrays.
      num_bytes: the size of their data.
      dtypes: their element types.
      files: the names of the files in ``output``.
      config: the Gin files that settings were read from; empty for none.
      left_out: the parts of the source that are not in the output, in words.
      assumptions: what was taken for granted, in words.
      warnings: what a user of the output has to know, in words.
      agreement: the comparison with T5X's network; None if there was none.
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
    """A request for a conversion.

    Attributes:
      checkpoint: a checkpoint, a folder of several (the latest counts), or a folder of transformers or safetensors.
      to: the form to write.
      output: the folder to write; a checkpoint of T5X goes into it as ``checkpoint_<step>``.
      gin_files: the config of the checkpoint's run; empty for the ``config.gin`` beside the checkpoint, if it exists.
      bindings: Gin statements that are parsed after the files.
      search_paths: folders where Gin files are looked up.
      vocabulary: path of the SentencePiece model, or ``bytes``; None for the config's.
      extra_ids: sentinels that SeqIO adds to that model's own pieces.
      model_type: the model type of transformers; None to choose.
      dtype: the element type to write floats in; None to keep each as it is.
      step: the train step of the checkpoint to write; None for the step of the source.
      scanned: whether T5X is to scan the layers of a umT5; None to keep them as they were.
      shard_bytes: the most data of a file.
      check: compare the results of the output with those of T5X.
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
