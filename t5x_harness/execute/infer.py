"""The infer stage: T5X's ``infer`` on a checkpoint, then a look at the JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gin
import seqio
from t5x import infer as infer_module
from t5x import utils

from t5x_harness.execute.execution import Execution
from t5x_harness.execute.prepare import PreparedRun
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.findings.work import NO_WORK
from t5x_harness.plan.stored_tree import StoredLayout, layout_of
from t5x_harness.resolve.datasets import few_examples, task_features
from t5x_harness.spec import Finding, Mode, Severity
from t5x_harness.upstream.t5x import Observed, observe


def infer_stage(run: Execution, report: StageReport) -> None:
    """Infers: an infer config by itself, otherwise with the last checkpoint of a train config."""
    small = run.prepared(report)
    with few_examples(small.all_tasks, small.examples):
        if small.config.mode is not Mode.INFER:
            model = run.trained_model(small)
            infer_checkpoint(small, model, run.trained_checkpoint(), run.workspace / "infer", report)
            return
        config, role = small.config, small.role("dataset_cfg")
        with observe(utils) as observed:
            gin.get_configurable(infer_module.infer)(dataset_cfg=role.dataset)
        mode = config.value(config.owner_of("mode")) or "predict"
        shard, of = (config.value(config.owner_of(name)) for name in ("shard_id", "num_shards"))
        shards = (shard or 0, 1 if of is None else of)  # of 0 shards each is all there is
        extension = config.value(config.owner_of("file_extension")) or "jsonl"
        output = run.written.local
        _count_predictions(output, small.tasks(role), str(mode), shards, str(extension), observed, report)


def infer_checkpoint(run: PreparedRun, model: Any, checkpoint: str, output: Path, report: StageReport) -> None:
    """Predicts with the checkpoint that a train config wrote, as an infer job for it would.

    A model whose data has no inputs is asked for scores, because there is nothing to predict from. A checkpoint that
    was written without orbax is read without it: at gs://, orbax deletes what it does not know.

    Raises:
      Exception: what T5X raises.
    """
    role = run.inferred
    features = task_features(model.FEATURE_CONVERTER_CLS, role.dataset.task_feature_lengths or ())
    mode = "score" if features and "inputs" not in features else "predict"
    with observe(utils) as observed:
        infer_module.infer(
            mode=mode,
            model=model,
            dataset_cfg=role.dataset,
            restore_checkpoint_cfg=utils.RestoreCheckpointConfig(path=checkpoint, mode="specific"),
            partitioner=run.partitioner,
            output_dir=str(output),
            checkpoint_period=1,
            use_orbax=layout_of(checkpoint) is not StoredLayout.T5X,
            checkpoint_ds_iter=False,  # a task of the user's may read from a generator, whose position cannot be saved
        )
    report.not_checked.append("going on with interrupted inference: it starts and ends here")
    _count_predictions(output, run.tasks(role), mode, (0, 1), "jsonl", observed, report)


def _count_predictions(
    output: Path,
    tasks: Sequence[seqio.Task],
    mode: str,
    shard: tuple[int, int],
    extension: str,
    observed: Observed,
    report: StageReport,
) -> None:
    """Counts the predictions of each task, and compares them with the examples that went through the model.

    They count as work only if a checkpoint was restored for them.
    """
    if not observed.restored:
        report.idle = "no checkpoint was restored to infer with"
        return
    if not observed.examples:
        report.idle = (
            "no example went through the model: there is none, or an earlier inference into this folder is complete"
        )
        return
    report.fact("checkpoint", ", ".join(map(os.path.basename, observed.restored)))
    report.idle = (
        f"no line was written for {observed.examples} examples of {', '.join(t.name for t in tasks) or 'no task'}"
    )
    for task in tasks:
        name = f"{task.name}-{mode}.{extension}-{shard[0]:05}-of-{shard[1]:05}"
        file = output / name
        if not (output / f"{name}.COMPLETED").exists() or not file.exists():
            report.find("INF03", f"inference left no {name} with its .COMPLETED marker", fix="see the run's log")
            continue
        lines = [line for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        report.exercised += len(lines)
        report.fact(f"{task.name} {mode}", f"{len(lines)} lines with {_keys(lines)}")
        report.measure("predictions", len(lines), "lines", of=task.name)
        if not lines:
            report.not_checked.append(f"the predictions of {task.name}: its file is empty")
    if 0 < report.exercised < observed.examples:
        message = f"{report.exercised} lines were written for {observed.examples} examples"
        fix = "let write_fn write a line for each example that it is given"
        report.add([Finding(NO_WORK, Severity.WARNING, report.stage, message, fix=fix)])


def _keys(lines: Sequence[str]) -> str:
    """Describes the keys of the first line if that is a JSON object, which T5X writes."""
    try:
        return ", ".join(sorted(json.loads(lines[0]))) if lines else "nothing"
    except (TypeError, ValueError):
        return "text of an own write_fn"
