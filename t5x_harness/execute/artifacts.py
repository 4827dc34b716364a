"""Reads back what a run wrote: TensorBoard scalars, JSON lines, checkpoints, the operative config."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from t5x_harness.plan.checkpoint_source import checkpoint_steps
from t5x_harness.spec import Checkpoint
from t5x_harness.vertex.events import scalars_of


def scalars_in(folder: Path, prefix: str = "") -> dict[str, dict[int, float]]:
    """Returns every scalar below a folder, by TensorBoard folder and tag, then step.

    Args:
      folder: such as a run's model_dir.
      prefix: put in front of the names, such as ``eval/``.
    """
    found: dict[str, dict[int, float]] = {}
    for file in sorted(folder.rglob("events.out.tfevents*")):
        where = file.parent.relative_to(folder).as_posix()
        name = prefix + (f"{where}/" if where != "." else "")
        for tag, step, value in scalars_of(file.read_bytes()):
            found.setdefault(f"{name}{tag}", {})[step] = value
    return found


def checkpoints_in(model_dir: Path) -> list[Checkpoint]:
    """Returns the checkpoints of a run, by step."""
    found = []
    for step in checkpoint_steps(str(model_dir)):
        path = model_dir / f"checkpoint_{step}"
        size = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
        found.append(Checkpoint(step, str(path), size))
    return found


def keep(output: Path, folder: Path) -> None:
    """Has ``folder`` show what ``output`` holds now, also once that is gone; by links where they can be had."""
    shutil.rmtree(folder, ignore_errors=True)
    if output.is_dir():
        shutil.copytree(output, folder, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def json_lines(folder: Path, pattern: str = "*.jsonl*") -> list[dict[str, Any]]:
    """Returns the objects in every JSON lines file of a folder and those below it, metrics and markers left out.

    What is not JSON, such as the lines of an own ``write_fn``, is left out, too.
    """
    found = []
    for file in sorted(folder.rglob(pattern)):
        if file.is_file() and "-metrics." not in file.name and not file.name.endswith(".COMPLETED"):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError):
                    found.append(json.loads(line))
    return [each for each in found if isinstance(each, dict)]
