"""A conversion in a process of its own, so that no library that it needs is imported into the caller's."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from t5x_harness.conversion.errors import ConversionError
from t5x_harness.conversion.request import Conversion, Form
from t5x_harness.system.buckets import is_remote
from t5x_harness.system.diagnosis import describe_returncode

_PREFIX = "t5x-harness: "
_SHOWN = 12
_GIVEN = "the config of the run"


def convert(
    checkpoint: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    to: Form | str = Form.TRANSFORMERS,
    config: str = "",
    vocabulary: str | None = None,
    dtype: str | None = None,
    check: bool = False,
) -> Conversion:
    """Converts a checkpoint, as ``t5x-harness convert`` does.

    Args:
      checkpoint: what the command takes.
      output: a new folder; None for one beside the checkpoint, or for one in a bucket a temporary one.
      to: ``transformers``, ``safetensors`` or ``t5x``.
      config: Gin text of the run; empty for the ``config.gin`` beside the checkpoint.
      vocabulary: path of the SentencePiece model, or ``bytes``; None for the config's.
      dtype: element type to write floats in; None for each as it is.
      check: run the result in transformers, and compare what it computes with what T5X's network does.

    Returns:
      What was made.

    Raises:
      ConversionError: it cannot be converted, or does not compute the same.
    """
    source, form = os.fspath(checkpoint).rstrip("/"), Form(to)
    with tempfile.TemporaryDirectory(prefix="t5x-harness-convert-") as scratch:
        arguments = [source, "--to", form, "--output", os.fspath(output or _beside(source, form)), "--format", "json"]
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


def _ended(done: subprocess.CompletedProcess[str]) -> str:
    """Says how a process ended that reported nothing itself, and what it wrote last."""
    lines = "".join(f"\n  {line}" for line in done.stderr.splitlines()[-_SHOWN:])
    return f"the process that converts {describe_returncode(done.returncode)}{lines or '; it wrote nothing'}"


def _beside(source: str, form: Form) -> str:
    name = f"{form}_of_{os.path.basename(source)}"
    parent = tempfile.mkdtemp(prefix="t5x-harness-converted-") if is_remote(source) else os.path.dirname(source)
    return os.path.join(parent, name)
