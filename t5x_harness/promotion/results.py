"""Reads the files that a T5X job wrote, and makes the results of a run's stages from them and from the job's end."""

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t5x_harness.buckets.folders import Folder
from t5x_harness.findings.work import (
    infinite_losses,
    judged,
    loss_in_words,
    loss_measures,
    undefined_metrics,
    why_no_number,
)
from t5x_harness.promotion.jobs import EndedJob
from t5x_harness.spec import Checkpoint, Finding, Measure, Outcome, Severity, Stage, StageResult
from t5x_harness.system.diagnosis import read_tail
from t5x_harness.vertex.logs import RanOn
from t5x_harness.vertex.machine import Machine
from t5x_harness.vertex.metrics import read_metrics
from t5x_harness.vertex.submitted import SubmittedJob

_CHECKPOINT = re.compile(r"checkpoint_(\d+)/")
_OF_STEP = re.compile(r"(?P<task>.+)-(?P<step>\d+)\.jsonl")
_INFERENCE = "inference_eval/"


@dataclasses.dataclass(frozen=True)
class JobResults:
    """The results of a job; :class:`~t5x_harness.spec.RunResult` describes the other attributes.

    Attributes:
      folder: the job's output folder.
      files: the sizes in bytes of all files in the folder, by name.
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
        """The metrics of evaluation by inference at the last step, under the names that the eval stage uses."""
        last = self.steps
        return {
            f"eval/{name}": {last: values[last]}
            for name, values in self.metrics.items()
            if name.startswith(_INFERENCE) and last in values
        }

    @property
    def metrics_of_tasks(self) -> Iterator[Measure]:
        """The metrics of evaluation by inference for each task, at the last step if steps were trained."""
        for tag, values in sorted(self.metrics.items()):
            step = self.steps or max(values, default=0)
            if tag.startswith(_INFERENCE) and step in values:
                task, _, name = tag.removeprefix(_INFERENCE).partition("/")
                yield Measure(name.removeprefix("eval/"), values[step], of=task)  # some loggers add this prefix


def read_results(folder: Folder) -> JobResults:
    """Reads the results that a job has written into its folder so far.

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
    """Returns the sorted files with predictions; of the files that training writes, only the last one for each task.

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


_NO_EVALUATION = "the job evaluates nothing by itself: bind infer_eval_dataset_cfg or train_eval_dataset_cfg"
_NO_PREDICTIONS = (
    "predictions: the job wrote none; training does with infer_eval_dataset_cfg and a JSONLogger in its evaluator"
)
_NO_MACHINE = "run it in another region, on another slice, or later: no machine is free"
_FIXES = {
    "preempted": "run it again: its machine was taken away, which is not the test's fault",
    "low on memory": "use a machine with more memory, or have each host keep less data and a smaller part of the model",
    "insufficient": _NO_MACHINE,
    "stockout": _NO_MACHINE,
    "internal error": "run it again; if it recurs, check the image's packages: t5x-harness doctor --image in it",
}
"""The fix for a job that ended early, by words in the service's message, in lower case."""
_TPU_NOT_CHECKED = "whether the job ran on its TPU: its log names no devices"


def stages_of_job(
    executing: Sequence[Stage],
    ended: EndedJob,
    job: SubmittedJob,
    found: JobResults,
    *,
    first_step: int,
    log: Path,
    earlier: Mapping[str, int],
    tpu: Machine | None = None,
) -> dict[Stage, StageResult]:
    """Makes the results of the stages that execute: of all of them, or only of the first if it failed.

    Args:
      executing: the stages; the job runs the first one, and training runs the others along the way.
      ended: how the job ended.
      job: the job.
      found: the results that the job wrote.
      first_step: the step that training starts from.
      log: the file with the job's log.
      earlier: the sizes, by name, of the files in the job's folder before it was sent, which are not its results.
      tpu: the machine, if the job has to run on that machine's TPU.
    """
    first, *later = executing
    if not ended.succeeded:
        code, message, fix = ending(ended, job)
        finding = Finding(code, Severity.ERROR, first, message, fix=fix)
        tail = read_tail(log) if log.exists() else ""
        return {first: StageResult(first, Outcome.FAILED, (finding,), not_checked=ended.notes, log_tail=tail)}
    done = _done(first, ended, found, first_step, earlier)
    if tpu is not None:
        done = _on_tpu(done, ended.ran_on, job, tpu)
    if done.outcome is Outcome.FAILED:
        return {first: done}
    others = {stage: _ON_THE_WAY[stage](found) for stage in later if stage in _ON_THE_WAY}
    left_out = {stage: _left_out(stage, f"{stage}: a job does not run it") for stage in later if stage not in others}
    return {first: done, **others, **left_out}


def ending(ended: EndedJob, job: SubmittedJob, *, shipped: bool = False) -> tuple[str, str, str]:
    """Explains why a job did not succeed: the code, message and fix.

    Args:
      ended: how the job ended.
      job: the job.
      shipped: whether the job ran a test, whose own code decides its steps.
    """
    if ended.outcome is None:
        return "RUN06", ended.problem, f"see {job.page}"
    reason, message = ended.outcome.error.lower(), f"the job {job.display_name} ended as {ended.outcome}"
    if "timeout" in reason or "longer than" in reason:
        less = "have the test do less" if shipped else "lower its steps="
        return "RUN06", message, f"raise timeout= of the marker, or {less}"
    if ended.outcome.state == "JOB_STATE_CANCELLED":
        otherwise = "run it again: it was cancelled"
    else:
        otherwise = f"see the end of its log, or all of it at {job.page}"
    return "RUN07", message, next((fix for text, fix in _FIXES.items() if text in reason), otherwise)


def _done(stage: Stage, ended: EndedJob, found: JobResults, first_step: int, earlier: Mapping[str, int]) -> StageResult:
    """Judges the work of a job that ended well."""
    step = max((checkpoint.step for checkpoint in _checkpoints("", earlier)), default=0)
    if stage is Stage.TRAIN:
        exercised = max(0, found.steps - max(first_step, step))  # training continues from the last checkpoint there
    else:
        exercised = 0 if earlier and found.files.items() <= earlier.items() else _examples(found)
    new = f"nothing new (earlier jobs came to step {step})" if earlier else "nothing"
    measures = tuple(_measures(stage, found))
    result = StageResult(
        stage,
        Outcome.NOT_RUN,
        tuple(_findings(stage, found)),
        tuple(_facts(found)),
        ended.notes,
        exercised=exercised,
        measures=measures,
    )
    unproved = why_no_number(measures) if stage is Stage.EVAL else ""
    return judged(result, idle=f"the job ended well and left {new} in {found.folder}", unproved=unproved)


def _on_tpu(done: StageResult, ran_on: RanOn, job: SubmittedJob, tpu: Machine) -> StageResult:
    """Fails a stage whose job ran on the host's CPU instead of its TPU; if that is unknown, notes it as not checked."""
    if not ran_on.platform:
        return dataclasses.replace(done, not_checked=(*done.not_checked, _TPU_NOT_CHECKED))
    if not ran_on.fell_back:
        return done
    message, fix = ran_on.no_tpu(job.display_name, str(tpu))
    finding = Finding("RUN11", Severity.ERROR, done.stage, message, fix=fix)
    return judged(dataclasses.replace(done, findings=(finding, *done.findings)))


def _findings(stage: Stage, found: JobResults) -> Iterator[Finding]:
    yield from infinite_losses(stage, found.metrics)
    if stage is Stage.EVAL:
        yield from undefined_metrics(stage, found.metrics_of_tasks)
    last = found.checkpoints[-1].step if found.checkpoints else None
    if stage is Stage.TRAIN and last is not None and last != found.steps:
        yield Finding(
            "RUN03",
            Severity.ERROR,
            stage,
            f"the last checkpoint is of step {last}, and training ended at step {found.steps}",
            fix="let the checkpoint period or checkpoint_steps end at the last step",
        )


def _facts(found: JobResults) -> Iterator[tuple[str, str]]:
    if loss := loss_in_words(found.metrics):
        yield "loss", loss
    if found.checkpoints:
        yield "checkpoints", ", ".join(f"{c.step} ({c.num_bytes / 2**20:.1f} MiB)" for c in found.checkpoints)


def _evaluated(found: JobResults) -> StageResult:
    """Makes the result of the evaluations during training, each from its last step."""
    losses = (n for n in found.metrics if n.startswith("training_eval/") and n.endswith("/loss"))
    evaluated = found.evaluated or {name: found.metrics[name] for name in losses}
    if not evaluated:
        return _left_out(Stage.EVAL, _NO_EVALUATION)
    last = {name: values[max(values)] for name, values in sorted(evaluated.items())}
    facts = [("evaluated by", "the training job itself")]
    facts += [(name, f"{value:.4g} at step {max(evaluated[name])}") for name, value in last.items()]
    result = StageResult(
        Stage.EVAL,
        Outcome.NOT_RUN,
        tuple(undefined_metrics(Stage.EVAL, found.metrics_of_tasks)),
        tuple(facts),
        exercised=len(last),
        measures=tuple(_measures(Stage.EVAL, found)),
    )
    return judged(result, unproved=why_no_number(Measure(name, value) for name, value in last.items()))


def _predicted(found: JobResults) -> StageResult:
    if not found.predictions:
        return _left_out(Stage.INFER, _NO_PREDICTIONS)
    keys = ", ".join(sorted(found.predictions[0]))
    facts = (("predicted by", "the training job itself"), ("predictions", f"{_examples(found)} lines with {keys}"))
    measures = tuple(_measures(Stage.INFER, found))
    return judged(StageResult(Stage.INFER, Outcome.NOT_RUN, (), facts, exercised=_examples(found), measures=measures))


def _measures(stage: Stage, found: JobResults) -> Iterator[Measure]:
    """Yields the same measures that the stage has when it runs locally."""
    if stage is Stage.TRAIN:
        yield from loss_measures(found.metrics)
    elif stage is Stage.EVAL:
        yield from found.metrics_of_tasks
    elif found.predictions:
        yield Measure("predictions", len(found.predictions), "lines")


def _examples(found: JobResults) -> int:
    return len(found.predictions) or len(found.metrics)


def _left_out(stage: Stage, reason: str) -> StageResult:
    return StageResult(stage, Outcome.NOT_RUN, not_checked=(reason,))


_ON_THE_WAY: Mapping[Stage, Callable[[JobResults], StageResult]] = {Stage.EVAL: _evaluated, Stage.INFER: _predicted}
"""The stages that a training job runs along the way, and the functions that make their results."""
