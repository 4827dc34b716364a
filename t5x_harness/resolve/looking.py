"""The look at a run's data: every split of every task that the run uses, each once, within bounds."""

from __future__ import annotations

import dataclasses
import re
import time

import seqio
import tensorflow as tf

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.resolve.datasets import DataRole, needing_lengths
from t5x_harness.resolve.endings import SourceEnd, find_end
from t5x_harness.resolve.error_texts import error_text, is_of_python
from t5x_harness.resolve.explanation import explain, log_traceback
from t5x_harness.resolve.failing_example import FailingExample, columns_left, failing_example, is_empty
from t5x_harness.resolve.frames import root_cause, user_frame
from t5x_harness.resolve.resolved import Resolved
from t5x_harness.resolve.samples import SECONDS, Sample, sample_of
from t5x_harness.resolve.tfds_state import tfds_problem
from t5x_harness.spec import READ_SECONDS, Finding, Severity
from t5x_harness.standins.task_data import cache_of, declared_size, files_of, is_generated, out_of_reach

_SECONDS_IN_ALL = 60.0
"""How long the reading of a run takes at most, but for the second that each task is given even then."""

_REMOTE = re.compile(r"\b(?:gs|s3|https?)://[^\s;,'\"]+")

_MOST_COUNTED = 1024
"""Examples of the training data that are counted at most, to see whether they fill one batch."""

READ = 10_000
"""Examples of each split that are read where there is time; any of them may make a preprocessor raise."""

_NO_END = 2**62
_SPLITS_IN_FULL = 6
"""Splits that may take all of their time; those after them get what is left."""


def look_at_data(run: Resolved, report: StageReport, read_seconds: float) -> None:
    """Samples the tasks of a run and looks for the end of what is read to its end.

    Args:
      run: gets the samples and endings.
      report: gets what the tasks raise, and what was not looked at.
      read_seconds: how long to read on in each split, to find examples that cannot be preprocessed.
    """
    _Look(run, report, read_seconds).look()


class _Look:
    """One look at all data of a run; what was read for one dataset serves the others."""

    def __init__(self, run: Resolved, report: StageReport, read_seconds: float) -> None:
        self._run = run
        self._report = report
        self._read_seconds = read_seconds
        self._until = time.monotonic() + max(_SECONDS_IN_ALL, _SPLITS_IN_FULL * read_seconds)
        self._failed: set[tuple[str, str]] = set()

    def look(self) -> None:
        for role in self._run.roles:
            for task in self._run.tasks[role.parameter]:
                split = role.dataset.split
                if split.split("[")[0] in task.splits or "+" in split:
                    self._look_at(role, task)

    def _look_at(self, role: DataRole, task: seqio.Task) -> None:
        where = (task.name, role.dataset.split)
        if where in self._failed or not self._is_there(role, task):
            return
        try:
            sample = self._sample(role, task)
            if self._run.is_read_to_the_end(role, task) and sample.endless is None and is_generated(task):
                self._run.endings[where] = self._end(role, task)
        except Exception as error:  # the user's source or preprocessor; the next task may be well
            self._failed.add(where)
            self._explain(error, task, role)
            return
        self._run.samples[role.parameter, task.name] = sample

    def _is_there(self, role: DataRole, task: seqio.Task) -> bool:
        """Returns whether there is anything to read: rules tell of a cache, data or lengths that are missing."""
        split = role.dataset.split
        uncached = self._run.is_uncached(task)
        if task.requires_caching and not uncached and not (role.dataset.use_cached and cache_of(task)):
            if role.dataset.use_cached:
                self._doubt(f"the examples of {task.name}: they are in no cache that can be read here")
            return False
        if cached := [folder for folder in map(str, seqio.get_global_cache_dirs()) if "://" in folder]:
            if role.dataset.use_cached and task.supports_caching and cache_of(task) is None and not uncached:
                self._doubt(f"whether {task.name} is cached in {cached[0]}: it cannot be read here")
        elif tfds_problem(task, split):
            return False
        if remote := out_of_reach(task, split):
            self._doubt(f"the examples of {task.name} {split}: {remote[0]} cannot be read here")
            return False
        if role.dataset.task_feature_lengths is None and needing_lengths(task):
            return False
        return files_of(task, split) != []

    def _sample(self, role: DataRole, task: seqio.Task) -> Sample:
        split = role.dataset.split
        cached = role.dataset.use_cached and bool(
            cache_of(task) or (task.requires_caching and self._run.is_uncached(task))
        )
        for (parameter, name), other in self._run.samples.items():
            same = name == task.name and other.split == split and other.whole
            if same and bool(self._role(parameter).dataset.use_cached) is bool(role.dataset.use_cached):
                return other
        batch = role.dataset.batch_size  # plan tells of one that is not a number (GIN08)
        count = min(batch, _MOST_COUNTED) if role.name == "train" and isinstance(batch, int) else 0
        seconds = self._seconds()
        sample = sample_of(
            role,
            task,
            use_cached=cached,
            count=count,
            seconds=seconds,
            further=READ if self._read_seconds <= READ_SECONDS else _NO_END,
            spare=min(self._read_seconds, self._left()),
        )
        self._report.exercised += len(sample.examples)
        if sample.late:
            came = f"{sample.count} came" if sample.count else "none came"
            self._doubt(f"more examples of {task.name} {split}: {came} within {seconds:.0f} s")
        elif not sample.ended and not self._run.standin_source(task):
            self._doubt(_unread(sample))
        return sample

    def _end(self, role: DataRole, task: seqio.Task) -> SourceEnd:
        where = (task.name, role.dataset.split)
        if where in self._run.endings:
            return self._run.endings[where]
        ending = find_end(task, role.dataset.split, role.dataset.seed, self._seconds())
        if not ending.ended and ending.period is None:
            self._doubt(f"whether {task.name} {role.dataset.split} ends: {ending.read:,} examples of its source came")
        return ending

    def _explain(self, error: Exception, task: seqio.Task, role: DataRole) -> None:
        split = role.dataset.split
        log_traceback(error)
        remote = _REMOTE.search(str(error)) if isinstance(error, tf.errors.OpError) else None
        if remote:  # a vocabulary, most often
            self._doubt(f"the examples of {task.name} {split}: {remote.group()} cannot be read here")
            return
        self._report.add([self._finding(error, task, role)])

    def _finding(self, error: Exception, task: seqio.Task, role: DataRole) -> Finding:
        """Returns what a task raised while it was read: of which example, if it is one.

        Else of what the task declares.
        """
        place, where = self._run.registrations.place(task.name), f"task {task.name} {role.dataset.split}"
        if is_empty(task, role):
            key = role.key(self._run.config, "split")
            return Finding(
                "SEQ36",
                Severity.ERROR,
                self._report.stage,
                f"task {task.name} has no example in split {role.dataset.split!r}, and its preprocessors cannot take "
                f"that: {error_text(root_cause(error))}",
                place or self._run.config.location(key),
                "check the source's files and filters",
            )
        finding = explain(error, self._report.stage, self._run.config)
        known = finding.code not in ("RUN01", "USR01")
        if finding.code == "SEQ06":
            left = ", ".join(columns_left(task, role)) or "nothing"
            finding = dataclasses.replace(finding, message=f"{finding.message}; they leave: {left}")
        if not known and (failing := _failing(task, role)):
            which = f"example {failing.index:,}" if failing.known else f"an example after {failing.index:,}"
            shown = f" ({failing.shown})" if failing.shown else ""
            inner = user_frame(failing.error) if is_of_python(failing.error) else None
            location = inner.location if inner else failing.location
            by = str(inner) if inner else f"{failing.function} in {location}" if location else failing.function
            return Finding(
                "USR01",
                Severity.ERROR,
                self._report.stage,
                f"{which} of {where}{shown} cannot be preprocessed: "
                f"{by} raised {error_text(root_cause(failing.error))}",
                location or place,
                f"correct {failing.function}, or drop such examples before it",
            )
        if finding.code == "RUN01":  # SeqIO raised it
            finding = dataclasses.replace(finding, message=f"the examples of {where} cannot be read: {finding.message}")
        return dataclasses.replace(finding, location=finding.location or place)

    def _seconds(self) -> float:
        return max(1.0, min(SECONDS, self._left()))

    def _left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def _role(self, parameter: str) -> DataRole:
        return next(role for role in self._run.roles if role.parameter == parameter)

    def _doubt(self, what: str) -> None:
        if what not in self._report.not_checked:
            self._report.not_checked.append(what)


def _failing(task: seqio.Task, role: DataRole) -> FailingExample | None:
    try:
        return failing_example(task, role)
    except Exception:  # raised before there was an example: what was raised at first says all there is
        return None


def _unread(sample: Sample) -> str:
    """Returns what was left of a split, in words."""
    name, size = f"{sample.task.name} {sample.split}", declared_size(sample.task, sample.split)
    if size is not None and size > sample.count:
        return f"{size - sample.count:,} of {size:,} examples of {name}: the first {sample.count:,} were read"
    return f"the examples of {name} after the first {sample.count:,}"
