"""A conversion in a process of its own, so that no library that it needs is imported into the caller's."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from t5x_harness.buckets.addresses import is_remote
from t5x_harness.conversion.errors import ConversionError
from t5x_harness.conversion.request import Conversion, Form
from t5x_harness.spec import RunResult
from t5x_harness.system.diagnosis import describe_returncode

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
      source: a run, whose checkpoint is converted so that what follows the training is tested, too; or the path that
        the command takes.
      output: a new folder; None for one beside the checkpoint, or for a temporary one if that is in a bucket.
      to: ``transformers``, ``safetensors`` or ``t5x``.
      step: the step of the run's checkpoint; None for the last. A path names its checkpoint itself.
      config: Gin text of the run; empty for the run's own, or for the ``config.gin`` beside the checkpoint.
      vocabulary: path of the SentencePiece model, or ``bytes``; None for the config's.
      dtype: element type to write floats in; None to keep each as it is.
      check: run the result in transformers, and compare what it computes with what T5X's network does; needs the extra
        ``convert``. By default, a run's checkpoint is checked.

    Returns:
      What was made.

    Raises:
      ConversionError: it cannot be converted, or does not compute the same.
      ValueError: the run wrote no checkpoint, or none at that step; or a path came with a step.
    """
    form = Form(to)
    if isinstance(source, RunResult):
        path, config = _checkpoint_of(source, step), config or source.operative_config
        check = check is not False and form is Form.TRANSFORMERS
    elif step is not None:
        raise ValueError(f"step={step} is for the checkpoints of a run: a path names its checkpoint itself")
    else:
        path = os.fspath(source).rstrip("/")
    with tempfile.TemporaryDirectory(prefix="t5x-harness-convert-") as scratch:
        arguments = [path, "--to", form, "--output", os.fspath(output or _beside(path, form)), "--format", "json"]
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
        raise ConversionError(reason if refused else _ended(done))
    made = Conversion.from_json(json.loads(done.stdout))
    return dataclasses.replace(made, config=(_GIVEN,)) if config and made.config else made


def _checkpoint_of(run: RunResult, step: int | None) -> str:
    """Returns the path of a run's checkpoint, the last if no step is given."""
    by_step = {checkpoint.step: checkpoint.path for checkpoint in run.checkpoints}
    if not by_step or (step is not None and step not in by_step):
        written = ", ".join(map(str, by_step)) or "none"
        raise ValueError(f"the run wrote no checkpoint{'' if step is None else f' at step {step}'}: it has {written}")
    return by_step[max(by_step) if step is None else step].rstrip("/")


def _ended(done: subprocess.CompletedProcess[str]) -> str:
    """Describes the end of a process that reported nothing itself, with the last lines that it wrote."""
    lines = "".join(f"\n  {line}" for line in done.stderr.splitlines()[-_SHOWN:])
    return f"the process that converts {describe_returncode(done.returncode)}{lines or '; it wrote nothing'}"


def _beside(source: str, form: Form) -> str:
    name = f"{form}_of_{os.path.basename(source)}"
    parent = tempfile.mkdtemp(prefix="t5x-harness-converted-") if is_remote(source) else os.path.dirname(source)
    return os.path.join(parent, name)
