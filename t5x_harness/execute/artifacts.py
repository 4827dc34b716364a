"""Reads back the files that a run wrote: TensorBoard scalars, JSON lines, checkpoints, the operative config."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

from t5x_harness.execute.execution import Execution
from t5x_harness.plan.checkpoint_source import checkpoint_steps
from t5x_harness.spec import Checkpoint, Mode
from t5x_harness.vertex.metrics import scalars_of


def read_artifacts(run: Execution) -> dict[str, Any]:
    """Returns the output of a run, as the fields of a RunResult that are read from its folder."""
    model_dir = run.workspace / "model"
    if run.output and run.output.is_in_bucket:
        # It is copied, by links if the file system allows: a later run must not see it, and all runs share the buckets.
        shutil.rmtree(model_dir, ignore_errors=True)
        if run.output.local.is_dir():
            shutil.copytree(run.output.local, model_dir, copy_function=_link)
    elif run.output:
        model_dir = run.output.local
    metrics = scalars_in(model_dir) if model_dir.is_dir() else {}
    predictions = []
    for part in ("eval", "infer"):
        folder = run.workspace / part
        if folder.is_dir():
            metrics |= scalars_in(folder, f"{part}/")
            predictions += json_lines(folder)
    if not predictions and model_dir.is_dir():
        predictions = json_lines(model_dir)
    trains = run.config is None or run.config.mode is Mode.TRAIN
    checkpoints = checkpoints_in(model_dir) if trains else []  # others may restore existing ones, and write none
    config = model_dir / "config.gin"
    return {
        "steps": run.trained.step if run.trained else 0,
        "metrics": {tag: {str(step): value for step, value in steps.items()} for tag, steps in metrics.items()},
        "checkpoints": [dataclasses.asdict(c) for c in checkpoints],
        "predictions": predictions,
        "operative_config": config.read_text(encoding="utf-8") if config.is_file() else "",
        "model_dir": str(model_dir),
        "runtime": str(run.runtime),
    }


def scalars_in(folder: Path, prefix: str = "") -> dict[str, dict[int, float]]:
    """Returns every scalar below a folder, by TensorBoard folder and tag, then step.

    Args:
      folder: the folder, such as a run's model_dir.
      prefix: a prefix for the names, such as ``eval/``.
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


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # it is on another file system
        shutil.copy2(source, target)


def json_lines(folder: Path) -> list[dict[str, Any]]:
    """Returns the objects in every JSON lines file below a folder, except metrics and markers.

    Text that is not JSON, such as the lines of a custom ``write_fn``, is left out.
    """
    found = []
    for file in sorted(folder.rglob("*.jsonl*")):
        if file.is_file() and "-metrics." not in file.name and not file.name.endswith(".COMPLETED"):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError):
                    found.append(json.loads(line))
    return [each for each in found if isinstance(each, dict)]
