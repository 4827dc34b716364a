"""The look at a run's data: every split of every task that the run uses, each once, within bounds."""

from __future__ import annotations

import dataclasses
import re
import time

import seqio
import tensorflow as tf

from t5x_harness.resolve.datasets import DataRole
from t5x_harness.resolve.endings import Ending, find_end
from t5x_harness.resolve.errors import explain, log_traceback
from t5x_harness.resolve.preprocessing import needing_lengths
from t5x_harness.resolve.resolved import Resolved
from t5x_harness.resolve.samples import SECONDS, Sample, sample_of
from t5x_harness.resolve.sources import cache_of, files_of, is_generated, out_of_reach
from t5x_harness.resolve.stage_report import StageReport
from t5x_harness.resolve.tfds_state import tfds_problem

__all__ = ["look_at_data"]

_SECONDS_IN_ALL = 60.0
"""How long the reading of a run takes at most, but for the second that each task is given even then."""

_REMOTE = re.compile(r"\b(?:gs|s3|https?)://[^\s;,'\"]+")

_MOST_COUNTED = 1024
"""Examples of the training data that are counted at most, to see whether they fill one batch."""


def look_at_data(run: Resolved, report: StageReport) -> None:
    """Samples the tasks of a run and looks for the end of what is read to its end.

    Args:
      run: gets the samples and endings.
      report: gets what the tasks raise, and what was not looked at.
    """
    _Look(run, report).look()


class _Look:
    """One look at all data of a run; what was read for one dataset serves the others."""

    def __init__(self, run: Resolved, report: StageReport) -> None:
        self._run = run
        self._report = report
        self._until = time.monotonic() + _SECONDS_IN_ALL
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
            self._explain(error, task, role.dataset.split)
            return
        self._run.samples[role.parameter, task.name] = sample

    def _is_there(self, role: DataRole, task: seqio.Task) -> bool:
        """Whether there is anything to read: rules tell of a cache, data or lengths that are missing."""
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
        batch = role.dataset.batch_size  # plan tells of one that is no number (GIN08)
        count = min(batch, _MOST_COUNTED) if role.name == "train" and isinstance(batch, int) else 0
        seconds = self._seconds()
        sample = sample_of(role, task, use_cached=cached, count=count, seconds=seconds)
        self._report.exercised += len(sample.examples)
        if sample.late:
            came = f"{sample.count} came" if sample.count else "none came"
            self._doubt(f"more examples of {task.name} {split}: {came} within {seconds:.0f} s")
        return sample

    def _end(self, role: DataRole, task: seqio.Task) -> Ending:
        where = (task.name, role.dataset.split)
        if where in self._run.endings:
            return self._run.endings[where]
        ending = find_end(task, role.dataset.split, role.dataset.seed, self._seconds())
        if not ending.ended and ending.period is None:
            self._doubt(f"whether {task.name} {role.dataset.split} ends: {ending.read:,} examples of its source came")
        return ending

    def _explain(self, error: Exception, task: seqio.Task, split: str) -> None:
        log_traceback(error)
        remote = _REMOTE.search(str(error)) if isinstance(error, tf.errors.OpError) else None
        if remote:  # a vocabulary, most often
            self._doubt(f"the examples of {task.name} {split}: {remote.group()} cannot be read here")
            return
        finding = explain(error, self._report.stage, self._run.config)
        if finding.location is None:  # SeqIO raised it, of what the task declares
            finding = dataclasses.replace(finding, location=self._run.registrations.place(task.name))
        self._report.add([finding])

    def _seconds(self) -> float:
        return max(1.0, min(SECONDS, self._until - time.monotonic()))

    def _role(self, parameter: str) -> DataRole:
        return next(role for role in self._run.roles if role.parameter == parameter)

    def _doubt(self, what: str) -> None:
        if what not in self._report.not_checked:
            self._report.not_checked.append(what)
