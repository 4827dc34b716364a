"""SEQ18, SEQ19 and INF11: splits and metrics that a task does not have."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from t5x_harness.resolve import examples
from t5x_harness.resolve.rule import Example, ResolveRule
from t5x_harness.spec import Finding, Mode, Severity

if TYPE_CHECKING:
    from t5x_harness.resolve.datasets import DataRole
    from t5x_harness.resolve.resolved import Resolved


def _without_split(run: Resolved) -> Iterator[tuple[DataRole, Any]]:
    """Every task that lacks the split that is asked of it."""
    for role in run.roles:
        split = role.dataset.split
        for task in run.tasks[role.parameter]:
            if split.split("[")[0] not in task.splits and "+" not in split:
                yield role, task


def _is_skipped(run: Resolved, role: DataRole) -> bool:
    """Whether T5X goes on without the task: in training's evaluations, and among the tasks of a mixture."""
    return role.name in ("train_eval", "infer_eval") or len(run.tasks[role.parameter]) > 1


def _what(role: DataRole, task: Any) -> str:
    return f"task {task.name} has no split {role.dataset.split!r} (it has: {', '.join(task.splits) or 'none'})"


def _mend(role: DataRole, task: Any) -> str:
    close = difflib.get_close_matches(role.dataset.split, list(task.splits), n=1)
    return f"use {close[0]!r}" if close else "choose a split that it has"


class SkippedSplit(ResolveRule):
    """A split that is missing, where T5X goes on without it."""

    code = "SEQ18"
    severity = Severity.WARNING
    title = "split that a task does not have, so that T5X skips it"
    why = (
        "Without the split T5X only logs that there is nothing to evaluate, and trains to the end unevaluated; a "
        "mixture goes on without the task."
    )
    bad = Example(
        examples.trained(),
        files=examples.files("splits=('train', 'validation')", "splits=('train',)"),
        at="  split = 'validation'",
    )
    good = Example(examples.trained(), files=examples.FILES)

    def check(self, run: Resolved) -> Iterator[Finding]:
        """Yields a finding for each such task."""
        for role, task in _without_split(run):
            if _is_skipped(run, role):
                message = f"{_what(role, task)}: T5X skips it without a word"
                yield self.finding(run.config, message, role.key(run.config, "split"), _mend(role, task))


class NothingToEvaluate(ResolveRule):
    """A run that evaluates or trains on what is not there."""

    code = "SEQ19"
    title = "task without the split or the metrics that the run needs"
    why = (
        "T5X says `has no metrics for evaluation, or this mixture/task doesn't have provided split`, which leaves open "
        "which of the two it is, after the model was built and the checkpoint found."
    )
    bad = Example(
        examples.evaluated("utils.DatasetConfig.split = 'tset'"),
        files=examples.FILES,
        at="utils.DatasetConfig.split",
    )
    good = Example(examples.evaluated("utils.DatasetConfig.split = 'validation'"), files=examples.FILES)

    def check(self, run: Resolved) -> Iterator[Finding]:
        """Yields a finding for each missing split and each dataset without metrics."""
        evaluating = run.config.mode is Mode.EVAL
        if run.config.mode is not Mode.INFER:
            for role, task in _without_split(run):
                if not _is_skipped(run, role):
                    key = role.key(run.config, "split")
                    yield self.finding(run.config, _what(role, task), key, _mend(role, task))
        for role in run.roles:
            judged = any(task.metric_fns for task in run.tasks[role.parameter])
            if (evaluating or role.name == "infer_eval") and not judged:
                yield self.finding(
                    run.config,
                    f"{role.source} has no metric_fns, so nothing of it is evaluated by its predictions",
                    role.key(run.config, "mixture_or_task_name"),
                    "register the task with metric_fns",
                    severity=Severity.ERROR if evaluating else Severity.NOTE,
                )


class InferredSplit(ResolveRule):
    """A split to infer that is not there."""

    code = "INF11"
    title = "split to infer that the task does not have"
    why = "Infer hands the split to the data source as it is, which dies with a bare `KeyError`."
    bad = Example(
        examples.inferred("utils.DatasetConfig.split = 'tset'"), files=examples.FILES, at="utils.DatasetConfig.split"
    )
    good = Example(examples.inferred("utils.DatasetConfig.split = 'validation'"), files=examples.FILES)

    def check(self, run: Resolved) -> Iterator[Finding]:
        """Yields a finding for each such task."""
        if run.config.mode is Mode.INFER:
            for role, task in _without_split(run):
                if not _is_skipped(run, role):
                    key = role.key(run.config, "split")
                    yield self.finding(run.config, _what(role, task), key, _mend(role, task))
