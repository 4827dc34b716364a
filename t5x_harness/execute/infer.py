"""The infer stage: T5X's ``infer`` on a checkpoint, then a look at the JSON lines."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gin
import seqio
from t5x import infer as infer_module
from t5x import utils

from t5x_harness.execute.artifacts import json_lines
from t5x_harness.execute.prepare import Prepared
from t5x_harness.plan.stored_tree import Layout, layout_of
from t5x_harness.resolve.datasets import task_features
from t5x_harness.resolve.stage_report import StageReport


def infer_config(run: Prepared, output: Path, report: StageReport) -> None:
    """Runs an infer config through its own gin.

    Args:
      run: of the config, its output folder bound.
      output: the output folder.
      report: gets the number of predictions.

    Raises:
      Exception: what T5X raises.
    """
    config, role = run.config, run.role("dataset_cfg")
    gin.get_configurable(infer_module.infer)(dataset_cfg=role.dataset)
    mode = config.value(config.owner_of("mode")) or "predict"
    shards = (config.value(config.owner_of("shard_id")) or 0, config.value(config.owner_of("num_shards")) or 1)
    extension = config.value(config.owner_of("file_extension")) or "jsonl"
    _look(output, run.tasks(role), str(mode), shards, str(extension), report)


def infer_checkpoint(run: Prepared, model: Any, checkpoint: str, output: Path, report: StageReport) -> None:
    """Predicts with the checkpoint that a train config wrote, as an infer job for it would.

    A model whose data has no inputs is asked for scores: there is nothing to predict from.  A checkpoint that was
    written without orbax is read without it: at gs://, orbax deletes what it does not know.

    Raises:
      Exception: what T5X raises.
    """
    role = run.inferred
    features = task_features(model.FEATURE_CONVERTER_CLS, role.dataset.task_feature_lengths or ())
    mode = "score" if features and "inputs" not in features else "predict"
    infer_module.infer(
        mode=mode,
        model=model,
        dataset_cfg=role.dataset,
        restore_checkpoint_cfg=utils.RestoreCheckpointConfig(path=checkpoint, mode="specific"),
        partitioner=run.partitioner,
        output_dir=str(output),
        checkpoint_period=1,
        use_orbax=layout_of(checkpoint) is not Layout.T5X,
        checkpoint_ds_iter=False,  # a task of the user's may read from a generator, whose position cannot be saved
    )
    report.fact("checkpoint", os.path.basename(checkpoint))
    report.not_checked.append("going on with interrupted inference: it starts and ends here")
    _look(output, run.tasks(role), mode, (0, 1), "jsonl", report)


def _look(
    output: Path,
    tasks: Sequence[seqio.Task],
    mode: str,
    shard: tuple[int, int],
    extension: str,
    report: StageReport,
) -> None:
    """Counts the predictions of each task and checks that T5X marked them complete."""
    for task in tasks:
        name = f"{task.name}-{mode}.{extension}-{shard[0]:05}-of-{shard[1]:05}"
        file = output / name
        if not (output / f"{name}.COMPLETED").exists() or not file.exists():
            report.find("INF03", f"inference left no {name} with its .COMPLETED marker", fix="see the run's log")
            continue
        lines = json_lines(output, name)
        report.exercised += len(lines)
        keys = ", ".join(sorted(lines[0])) if lines else "nothing"
        report.fact(f"{task.name} {mode}", f"{len(lines)} lines with {keys}")
        report.measure("predictions", len(lines), "lines", of=task.name)
