"""The request for a conversion, its report, its error, and a conversion in a separate process.

No library that a conversion needs is imported into the caller's process.
"""

import dataclasses
import enum
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from t5x_harness.buckets.addresses import is_remote
from t5x_harness.spec import RunResult
from t5x_harness.system.decode import JsonValue
from t5x_harness.system.diagnosis import describe_returncode


class ConversionError(Exception):
    """A checkpoint cannot be converted; the message says what was read, what disagrees, and how to fix it."""


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


SHARD_BYTES = 5_000_000_000
"""The default for the maximum data in a file, in bytes."""

TOLERANCE = 1e-4
"""The tolerance for logits, relative to the largest logit if that is above 1."""


class Form(enum.StrEnum):
    """The target of a conversion.

    ``TRANSFORMERS``: a folder that ``from_pretrained`` loads.
    ``SAFETENSORS``: only the parameters of any network, under T5X's names.
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
      same_outputs: whether greedy decoding yields the same tokens.
      outputs: the number of these tokens.
    """

    logits: int
    difference: float
    largest: float
    same_outputs: bool
    outputs: int

    @property
    def holds(self) -> bool:
        """Whether the models compute the same results."""
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
      num_bytes: the size of the arrays' data in bytes.
      dtypes: the element types of the arrays.
      files: the names of the files in ``output``.
      config: the Gin files that settings were read from; empty if there were none.
      left_out: the parts of the source that are not in the output, in words.
      assumptions: the assumptions that were made, in words.
      warnings: the facts that a user of the output has to know, in words.
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
      checkpoint: a checkpoint, a folder of several (the latest one is used), or a transformers or safetensors folder.
      to: the form to write.
      output: the folder to write; a T5X checkpoint is written into it as ``checkpoint_<step>``.
      gin_files: the config of the checkpoint's run; empty for the ``config.gin`` next to the checkpoint, if it exists.
      bindings: Gin statements that are parsed after the files.
      search_paths: the folders where Gin files are looked up.
      vocabulary: the path of the SentencePiece model, or ``bytes``; None for the config's vocabulary.
      extra_ids: the number of sentinels that SeqIO adds to that model's own pieces.
      model_type: the model type of transformers; None to choose one.
      dtype: the element type in which floats are written; None to keep each unchanged.
      step: the train step of the checkpoint to write; None for the step of the source.
      scanned: whether T5X should scan the layers of a umT5; None to keep the original layout.
      shard_bytes: the maximum data in a file, in bytes.
      check: whether to compare the output's results with T5X's.
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


_PREFIX = "t5x-harness: "
_SHOWN = 12
_GIVEN = "the config of the run"


def convert(
    source: RunResult | str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    to: Form | str = Form.TRANSFORMERS,
    step: int | None = None,
    config: str = "",
    vocabulary: str | None = None,
    dtype: str | None = None,
    check: bool | None = None,
) -> Conversion:
    """Converts a checkpoint, as ``t5x-harness convert`` does.

    Args:
      source: a run, whose checkpoint is converted to also test the work that follows training; or the path that
        the command takes.
      output: a new folder; None for one next to the checkpoint, or for a temporary one if the checkpoint is in a
        bucket.
      to: ``transformers``, ``safetensors`` or ``t5x``.
      step: the step of the run's checkpoint; None for the last one. A path already names its checkpoint.
      config: the Gin text of the run; empty for the run's own, or for the ``config.gin`` next to the checkpoint.
      vocabulary: the path of the SentencePiece model, or ``bytes``; None for the config's vocabulary.
      dtype: the element type in which floats are written; None to keep each unchanged.
      check: whether to run the result in transformers and compare its results with those of T5X's network; needs the
        extra ``convert``. By default, a run's checkpoint is checked.

    Returns:
      A description of the conversion.

    Raises:
      ConversionError: the checkpoint cannot be converted, or the result computes something else.
      ValueError: the run wrote no checkpoint, or none at that step, or a step was given for a path.
    """
    form = Form(to)
    if isinstance(source, RunResult):
        path, config = _checkpoint_of(source, step), config or source.operative_config
        check = check is not False and form is Form.TRANSFORMERS
    elif step is not None:
        raise ValueError(f"step={step} is for the checkpoints of a run: a path names its checkpoint itself")
    else:
        path = os.fspath(source).rstrip("/")
    if not output:
        beside = tempfile.mkdtemp(prefix="t5x-harness-converted-") if is_remote(path) else os.path.dirname(path)
        output = os.path.join(beside, f"{form}_of_{os.path.basename(path)}")
    with tempfile.TemporaryDirectory(prefix="t5x-harness-convert-") as scratch:
        arguments = [path, "--to", form, "--output", os.fspath(output), "--format", "json"]
        if config and form is Form.TRANSFORMERS:
            file = Path(scratch) / "config.gin"
            file.write_text(config, encoding="utf-8")
            arguments += ["--gin_file", str(file)]
        arguments += ["--vocabulary", vocabulary] if vocabulary else []
        arguments += ["--dtype", dtype] if dtype else []
        arguments += ["--check"] if check else []
        command = [sys.executable, "-P", "-m", "t5x_harness", "convert", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        _, refused, reason = done.stderr.strip().partition(_PREFIX)
        if not refused:
            lines = "".join(f"\n  {line}" for line in done.stderr.splitlines()[-_SHOWN:]) or "; it wrote nothing"
            reason = f"the process that converts {describe_returncode(done.returncode)}{lines}"
        raise ConversionError(reason)
    made = Conversion.from_json(json.loads(done.stdout))
    return dataclasses.replace(made, config=(_GIVEN,)) if config and made.config else made


def _checkpoint_of(run: RunResult, step: int | None) -> str:
    """Returns the path of a run's checkpoint, which is the last one if no step is given."""
    by_step = {checkpoint.step: checkpoint.path for checkpoint in run.checkpoints}
    if not by_step or (step is not None and step not in by_step):
        written = ", ".join(map(str, by_step)) or "none"
        raise ValueError(f"the run wrote no checkpoint{'' if step is None else f' at step {step}'}: it has {written}")
    return by_step[max(by_step) if step is None else step].rstrip("/")
