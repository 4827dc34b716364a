"""CKP03, CKP13, INF01 and INF06: files of earlier jobs in the folder that this job writes into."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5x_harness.findings.rule import FILES, FOLDER, Found, Rule, inferred, inferring, training
from t5x_harness.gin.reader import read
from t5x_harness.gin.values import Macro, Reference
from t5x_harness.resolve.output_folder import JobOutputFolder, inference_output, model_dir, output_folder
from t5x_harness.spec import Mode, Severity

if TYPE_CHECKING:
    from t5x_harness.gin.program import GinProgram
    from t5x_harness.resolve.resolved import Resolved

_CHECKPOINT = re.compile(r"checkpoint_(\d+)")
_HALF_WRITTEN = re.compile(r"checkpoint_\d+\.(?:tmp|orbax-checkpoint-tmp)-.+")

_SAME = ("mixture_or_task_name", "task_feature_lengths", "split", "batch_size", "checkpoint_period", "path", "mode")
"""Parameters that must not change between an interrupted inference and the one that resumes it."""

_OF = ("DatasetConfig", "RestoreCheckpointConfig", "infer")

_MODEL_DIR = f"MODEL_DIR = '{FOLDER}/model'"
_OUTPUT = (f"INFER_OUTPUT_DIR = '{FOLDER}/out'", "utils.DatasetConfig.split = 'validation'")
_INFERRED = inferred(*_OUTPUT)


@Rule(
    "CKP03",
    "MODEL_DIR that holds checkpoints of an earlier run",
    severity=Severity.WARNING,
    why=(
        "T5X goes on from the latest checkpoint in MODEL_DIR and does not look at INITIAL_CHECKPOINT_PATH then: it "
        "stops with a shape error if that is another model, and trains on from the wrong weights if it is the same."
    ),
    bad=training(_MODEL_DIR, files={**FILES, "model/checkpoint_500/commit_success.txt": ""}, at="MODEL_DIR"),
    good=training(_MODEL_DIR),
)
def earlier_checkpoint(run: Resolved) -> Iterator[Found]:
    """Finds a local model folder that already holds checkpoints."""
    folder = model_dir(run.config)
    names = folder.names() if folder is not None else []
    steps = sorted(int(match.group(1)) for name in names if (match := _CHECKPOINT.fullmatch(name)))
    if folder is not None and steps:
        held = f"checkpoint_{steps[-1]}" + (f" and {len(steps) - 1} earlier" if steps[1:] else "")
        yield Found(
            f"{folder.path} holds {held}: T5X goes on from there and reads no other checkpoint "
            "(here the run gets a folder of its own)",
            folder.key,
            "use a new folder for a new run",
        )


@Rule(
    "CKP13",
    "MODEL_DIR in which a checkpoint is half written",
    severity=Severity.WARNING,
    why=(
        "Such a folder is left by a job that died while it saved, or belongs to one that is running. Two jobs in one "
        "MODEL_DIR delete each other's unfinished checkpoints and die of it, at random. At gs://, a job may report a "
        "checkpoint as saved whose arrays another one had orbax remove."
    ),
    bad=training(_MODEL_DIR, files={**FILES, "model/checkpoint_500.orbax-checkpoint-tmp-7/part": ""}, at="MODEL_DIR"),
    good=training(_MODEL_DIR),
)
def half_written_checkpoint(run: Resolved) -> Iterator[Found]:
    """Finds a local model folder in which a checkpoint is being written, or its writing was interrupted."""
    folder = model_dir(run.config)
    half = [name for name in folder.names() if _HALF_WRITTEN.fullmatch(name)] if folder is not None else []
    if folder is not None and half:
        yield Found(
            f"{folder.path} holds {half[-1]}, a checkpoint that is half written: another job is saving there, or "
            "died of it",
            folder.key,
            "use another folder, or remove what the dead job left",
        )


@Rule(
    "INF01",
    "output folder in which the inference is done",
    severity=Severity.WARNING,
    why=(
        "Where it finds the `.COMPLETED` file of a task, T5X silently skips the task, whatever checkpoint is to "
        "be inferred with now: the job ends well, and the predictions are the old ones."
    ),
    bad=inferring(
        *_OUTPUT,
        files={**FILES, "out/counting-predict.jsonl-00000-of-00001.COMPLETED": ""},
        at="INFER_OUTPUT_DIR",
    ),
    good=inferring(*_OUTPUT),
)
def finished_inference(run: Resolved) -> Iterator[Found]:
    """Finds a local output folder in which the inference of some tasks is finished."""
    for folder, tasks in _left(run, 0):
        files = ", ".join(tasks.values())
        yield Found(
            f"{folder.path} holds {files}: T5X skips {', '.join(tasks)} and leaves the predictions of an earlier job",
            folder.key,
            "use a new folder, or remove the .COMPLETED files",
        )


@Rule(
    "INF06",
    "output folder with another inference that was interrupted",
    severity=Severity.WARNING,
    why=(
        "T5X goes on where the interrupted job's data stood and merges what both wrote. If the split, the batch or the "
        "checkpoint is another one by now, examples are missing or doubled, or have the predictions of two models."
    ),
    bad=inferring(
        *_OUTPUT,
        files={
            **FILES,
            "out/tmp-counting-00000-of-00001/input.ckpt.index": "",
            "out/config.gin": _INFERRED.replace("'validation'", "'train'"),
        },
        at="INFER_OUTPUT_DIR",
    ),
    good=inferring(
        *_OUTPUT,
        files={**FILES, "out/tmp-counting-00000-of-00001/input.ckpt.index": "", "out/config.gin": _INFERRED},
    ),
)
def resumed_inference(run: Resolved) -> Iterator[Found]:
    """Finds a local output folder with an interrupted inference of another config."""
    for folder, tasks in _left(run, 1):
        different = _different(run.config.program, folder)
        if different:
            changes = "; ".join(f"{name} was {then!r} and is {now!r}" for name, (then, now) in different.items())
            yield Found(
                f"{folder.path} holds an interrupted inference of {', '.join(tasks)}, which T5X goes on with, "
                f"though {changes}",
                folder.key,
                "use a new folder, or the config of the interrupted job",
            )


def _left(run: Resolved, which: int) -> Iterator[tuple[JobOutputFolder, dict[str, str]]]:
    """Yields the files that earlier jobs left for the tasks to infer: the folder, and a file name in it by task."""
    folder = output_folder(run.config)
    if folder is None or run.config.mode is not Mode.INFER:
        return
    names = set(folder.names())
    tasks = [task.name for _, task in run.reads()]
    left = {task: inference_output(run.config, task)[which] for task in tasks}
    found = {task: name for task, name in left.items() if name in names}
    if found:
        yield folder, found


def _different(program: GinProgram, folder: JobOutputFolder) -> dict[str, tuple[Any, Any]]:
    """Returns the parameters that had other values in the folder's own config, by name: the value then and now."""
    file = folder.local / "config.gin" if folder.local is not None else None
    if file is None or not file.is_file():
        return {}
    spec = dataclasses.replace(program.spec, gin_files=(os.path.abspath(file),), bindings=())
    then = read(spec, t5x_parent=Path(program.t5x_parent) if program.t5x_parent else None)
    before, after = _data(then), _data(program)
    return {name: (before[name], now) for name, now in after.items() if name in before and before[name] != now}


def _data(program: GinProgram) -> dict[str, Any]:
    """Returns the values, if the text shows them, that decide what is inferred and from which checkpoint."""
    found = {}
    for binding in program.final_bindings:
        configurable, value = binding.target.split(".")[-1], program.resolve(binding).value
        if configurable in _OF and binding.param in _SAME and not isinstance(value, (Macro, Reference)):
            found[f"{configurable}.{binding.param}"] = value
    return found
