"""SEQ18, SEQ19 and INF11: splits and metrics that a task does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from t5x_harness.findings import examples
from t5x_harness.findings.examples import evaluating, inferring, training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.resolve.rule import finds
from t5x_harness.spec import Mode, Severity
from t5x_harness.system.misspelling import closest

if TYPE_CHECKING:
    from t5x_harness.resolve.datasets import DataRole
    from t5x_harness.resolve.resolved import Resolved


def _without_split(run: Resolved) -> Iterator[tuple[DataRole, Any]]:
    """Yields every task that lacks the split that is asked of it."""
    for role, task in run.reads():
        if not _has_split(run, role, task):
            yield role, task


def _has_split(run: Resolved, role: DataRole, task: Any) -> bool:
    """Returns whether a task has the split: by its name, or as TFDS takes it: a part, or several."""
    import seqio

    from t5x_harness.resolve.datasets import provider_of

    split = role.dataset.split
    if split in task.splits:
        return True
    by_name = role.name == "train_eval" or run.has_evaluator(role) or isinstance(provider_of(role), seqio.Mixture)
    if by_name or not isinstance(task.source, seqio.TfdsDataSource):
        return False
    return "+" in split or split.split("[")[0] in task.splits


def _is_skipped(run: Resolved, role: DataRole) -> bool:
    """Returns whether T5X goes on without a task that lacks the split.

    In training's evaluations, and where others have it.
    """
    if role.name in ("train_eval", "infer_eval"):
        return True
    return run.config.mode is not Mode.INFER and any(_has_split(run, role, t) for t in run.tasks[role.parameter])


def _what(role: DataRole, task: Any) -> str:
    return f"task {task.name} has no split {role.dataset.split!r} (it has: {', '.join(task.splits) or 'none'})"


def _fix(role: DataRole, task: Any, without: str = "") -> str:
    whole = role.dataset.split.split("[")[0]
    if whole in task.splits:
        return f"use {whole!r}: only whole splits can be read here"
    close = closest(role.dataset.split, task.splits)
    return f"use {close!r}" if close else f"choose a split that it has{without}"


SEQ18 = Mistake(
    "SEQ18",
    "split that a task does not have, so that T5X skips it",
    severity=Severity.WARNING,
    why=(
        "Without the split T5X only logs that there is nothing to evaluate, and trains to the end unevaluated; a "
        "mixture goes on without the task. An error where no task has the split, so that nothing is evaluated by its "
        "predictions, or where the split is one that your own config names."
    ),
    bad=training(
        files=examples.files("splits=('train', 'validation')", "splits=('train',)"),
        at="include 't5x/configs/runs/pretrain.gin'",
    ),
    good=training(),
)


@finds(SEQ18)
def skipped_split(run: Resolved) -> Iterator[Found]:
    """Finds each missing split that T5X skips."""
    for role, task in _without_split(run):
        if not _is_skipped(run, role):
            continue
        key = role.key(run.config, "split")
        left = any(_has_split(run, role, other) for other in run.tasks[role.parameter])
        skips = "skips it" if left else "evaluates nothing"
        meant = run.has_evaluator(role) or run.config.is_of_user(key)
        yield Found(
            f"{_what(role, task)}: T5X {skips} without a word",
            key,
            _fix(role, task, "" if left else f", or set {_entry(run, role)} = None to train without it"),
            severity=Severity.ERROR if meant and not left else Severity.WARNING,
        )


def _entry(run: Resolved, role: DataRole) -> str:
    """Returns the entry point's parameter that a dataset is bound to, as a binding names it."""
    return f"{run.config.entry.removeprefix('__main__.')}.{role.parameter}"


SEQ19 = Mistake(
    "SEQ19",
    "task without the split or the metrics that the run needs",
    why=(
        "T5X says `has no metrics for evaluation, or this mixture/task doesn't have provided split`, which leaves open "
        "which of the two it is, after the model was built and the checkpoint found."
    ),
    bad=evaluating("utils.DatasetConfig.split = 'tset'", at="utils.DatasetConfig.split"),
    good=evaluating("utils.DatasetConfig.split = 'validation'"),
)


@finds(SEQ19)
def nothing_to_evaluate(run: Resolved) -> Iterator[Found]:
    """Finds each missing split and each dataset without metrics."""
    if run.config.mode is not Mode.INFER:
        for role, task in _without_split(run):
            if not _is_skipped(run, role):
                key = role.key(run.config, "split")
                yield Found(_what(role, task), key, _fix(role, task))
    for role in run.roles:
        if run.has_evaluator(role) and not any(run.is_evaluated(role, task) for task in run.tasks[role.parameter]):
            yield Found(
                f"{role.source} has no metric_fns, so nothing of it is evaluated by its predictions",
                role.key(run.config, "mixture_or_task_name"),
                "register the task with metric_fns",
                severity=Severity.ERROR if run.config.mode is Mode.EVAL else Severity.NOTE,
            )


INF11 = Mistake(
    "INF11",
    "split to infer that the task does not have",
    why="Infer hands the split to the data source as it is, which ends with a bare `KeyError`.",
    bad=inferring("utils.DatasetConfig.split = 'tset'", at="utils.DatasetConfig.split"),
    good=inferring("utils.DatasetConfig.split = 'validation'"),
)


@finds(INF11)
def inferred_split(run: Resolved) -> Iterator[Found]:
    """Finds each split to infer that does not exist."""
    if run.config.mode is Mode.INFER:
        for role, task in _without_split(run):
            if not _is_skipped(run, role):
                key = role.key(run.config, "split")
                yield Found(_what(role, task), key, _fix(role, task))
