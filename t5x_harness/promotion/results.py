"""Reads what a T5X job wrote into its bucket, as the parts of a RunResult."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from t5x_harness.buckets.folders import Folder
from t5x_harness.spec import Checkpoint, Measure
from t5x_harness.vertex.metrics import read_metrics

_CHECKPOINT = re.compile(r"checkpoint_(\d+)/")
_OF_STEP = re.compile(r"(?P<task>.+)-(?P<step>\d+)\.jsonl")
_INFERENCE = "inference_eval/"


@dataclasses.dataclass(frozen=True)
class JobResults:
    """The results of a job; :class:`~t5x_harness.spec.RunResult` describes the other attributes.

    Attributes:
      folder: the job's output folder.
      files: sizes in bytes of all files in it, by name.
    """

    folder: str
    metrics: Mapping[str, Mapping[int, float]] = dataclasses.field(default_factory=dict)
    checkpoints: tuple[Checkpoint, ...] = ()
    predictions: tuple[Mapping[str, Any], ...] = ()
    operative_config: str = ""
    files: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def steps(self) -> int:
        """The last step that was trained; 0 if none was."""
        trained = [step for name, values in self.metrics.items() if name.startswith("train/") for step in values]
        return max([*trained, *(checkpoint.step for checkpoint in self.checkpoints)], default=0)

    @property
    def evaluated(self) -> Mapping[str, Mapping[int, float]]:
        """The metrics of the evaluation by inference at the last step, under the names of the eval stage."""
        last = self.steps
        return {
            f"eval/{name}": {last: values[last]}
            for name, values in self.metrics.items()
            if name.startswith(_INFERENCE) and last in values
        }

    @property
    def metrics_of_tasks(self) -> Iterator[Measure]:
        """The metrics of the evaluation by inference for each task: at the last step, if steps were trained."""
        for tag, values in sorted(self.metrics.items()):
            step = self.steps or max(values, default=0)
            if tag.startswith(_INFERENCE) and step in values:
                task, _, name = tag.removeprefix(_INFERENCE).partition("/")
                yield Measure(name.removeprefix("eval/"), values[step], of=task)  # some loggers add this prefix


@dataclasses.dataclass(frozen=True)
class Earlier:
    """The files in a job's folder before the job was sent, which are not its results.

    Attributes:
      files: their sizes in bytes by name; empty for a new folder.
    """

    files: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def last_step(self) -> int:
        """The step of the last checkpoint, from which training continues; 0 if there is none."""
        return max((checkpoint.step for checkpoint in _checkpoints("", self.files)), default=0)

    def is_all_of(self, files: Mapping[str, int]) -> bool:
        """Returns whether nothing was written since then."""
        return bool(self.files) and files.items() <= self.files.items()


def read_results(folder: Folder) -> JobResults:
    """Reads what a job has written into its folder so far.

    Args:
      folder: its MODEL_DIR, or the output folder of an eval or infer job.

    Raises:
      StorageError: the bucket does not exist, or access is refused.
      MetricsError: TensorBoard is not installed.
    """
    names = dict(folder.names())
    written = (folder.read(name) or b"" for name in last_of_each(names))
    lines = (line for content in written for line in content.decode().splitlines() if line.strip())
    return JobResults(
        folder.address,
        read_metrics(folder).values,
        _checkpoints(folder.address, names),
        tuple(json.loads(line) for line in lines),
        (folder.read("config.gin") or b"").decode() if "config.gin" in names else "",
        names,
    )


def last_of_each(names: Iterable[str]) -> list[str]:
    """Returns the files with predictions, sorted; of the files that training writes, only the last of each task.

    Args:
      names: the names of all files in the folder.
    """
    kept: dict[str, tuple[int, str]] = {}
    for name in names:
        base = name.rpartition("/")[2]
        if ".jsonl" not in base or "-metrics." in base or base.endswith(".COMPLETED") or "/tmp-" in f"/{name}":
            continue
        found = _OF_STEP.fullmatch(name)
        task, step = (found["task"], int(found["step"])) if found else (name, 0)
        kept[task] = max(kept.get(task, (step, name)), (step, name))
    return sorted(name for _, name in kept.values())


def _checkpoints(address: str, names: Mapping[str, int]) -> tuple[Checkpoint, ...]:
    sizes: dict[int, int] = {}
    for name, size in names.items():
        if found := _CHECKPOINT.match(name):
            sizes[int(found[1])] = sizes.get(int(found[1]), 0) + size
    return tuple(Checkpoint(step, f"{address}/checkpoint_{step}", size) for step, size in sorted(sizes.items()))
