"""Samples the data of a run, every split of every task once and within bounds, and finds examples that fail."""

import contextlib
import dataclasses
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.resolve.datasets import DataRole, needing_lengths, source_dataset, tfds_problem
from t5x_harness.resolve.exceptions import error_text, is_of_python, root_cause, user_frame
from t5x_harness.resolve.explanation import explain, log_traceback
from t5x_harness.resolve.pipeline import Part, build, of_nothing, preprocessed, steps_of, without_dataset, wrong_object
from t5x_harness.resolve.resolved import Resolved
from t5x_harness.resolve.samples import SECONDS, Reading, Sample, SourceEnd, find_end, read_within, sample_of
from t5x_harness.slices.pod import hosts_on_each_core
from t5x_harness.spec import READ_SECONDS, Finding, Location, Severity
from t5x_harness.standins.sources import cache_of, declared_size, files_of, is_generated, out_of_reach

_SECONDS = 5.0
"""Seconds that each preprocessor may take; only a run that has already failed waits for them."""
_LONGEST = 60
_SECONDS_IN_ALL = 60.0
"""Seconds that all reading may take, except that each task always gets one second."""

_REMOTE = re.compile(r"\b(?:gs|s3|https?)://[^\s;,'\"]+")
_WRONG_RANK = re.compile(r"^feature (\S+) has rank ")
_MOST_COUNTED = 1024
"""The largest number of training examples to count, to see whether they fill one batch."""

READ = 10_000
"""The number of examples of each split to read if there is time; any of them may make a preprocessor raise."""

_NO_END = 2**62
_SPLITS_IN_FULL = 6
"""The number of splits that may take all of their time; later splits share the time that is left."""


def example_at_fault(task: seqio.Task, role: DataRole) -> tuple[str, Location | None, str] | None:
    """Applies one more of a task's preprocessors at a time, in order, until one raises while examples are read.

    Args:
      task: the task, whose source is read from the beginning and without shuffling.
      role: the dataset that the task is part of.

    Returns:
      A message about the example, the place of the preprocessor if the user wrote it, and the fix; None if nothing
      is raised again in a bounded time, or something is raised before the first example.
    """
    steps = steps_of(task)
    all_read = True
    for number in range(1, len(steps) + 1):
        reading, error = _read(task, role, steps[:number])
        if error is not None:
            break
        all_read = all_read and reading.ended
    else:
        return None
    shown = _shown_if_it_raises_alone(task, role, steps[:number], reading.count)
    if shown is None and not all_read:
        return None  # an earlier preprocessor may raise for an example that there was no time to read
    # If time was short, a preprocessor before the last one may already raise for this example.
    while shown is not None and number > 1:
        if _shown_if_it_raises_alone(task, role, steps[: number - 1], reading.count) is None:
            break
        number -= 1
    part, inner = Part.of(steps[number - 1]), user_frame(error) if is_of_python(error) else None
    by, location = str(inner or part), inner.location if inner else part.place
    which = f"an example after {reading.count:,}" if shown is None else f"example {reading.count:,}"
    which += f" of task {task.name} {role.dataset.split}{f' ({shown})' if shown else ''}"
    message = f"{which} cannot be preprocessed: {by} raised {error_text(root_cause(error))}"
    if inner is None and part.place is None and (given := build(task, role).given_to(part.name, number)):
        message += f"; {given}"
    elif shown is not None and number > 1:
        before = preprocessed(task, role, _only(task, role, reading.count), steps[: number - 1])
        message += f"; {part.name} is given {_shown(next(iter(before.as_numpy_iterator()), None))}"
    return message, location, f"correct {part.name}, or drop such examples before it"


def is_empty(task: seqio.Task, role: DataRole) -> bool:
    """Tells whether a task's source has no examples at all, so its preprocessors are not at fault if they raise."""
    try:
        reading = read_within(
            lambda: source_dataset(task, role.dataset).as_numpy_iterator(), keep=1, count=1, seconds=1.0
        )
    except Exception:  # if the source itself raises, that is a different mistake
        return False
    return reading.ended and not reading.count


def _read(task: seqio.Task, role: DataRole, steps: Sequence[Any]) -> tuple[Reading[Any], Exception | None]:
    """Reads through some preprocessors until one raises; returns the reading up to there, and the exception or None."""
    raised: list[Exception] = []

    def examples() -> Iterator[Any]:
        # An exception while the graph is built belongs to no example, and goes to the caller.
        iterator = preprocessed(task, role, source_dataset(task, role.dataset), steps).as_numpy_iterator()
        try:
            yield from iterator
        except Exception as error:
            raised.append(error)

    reading = read_within(examples, keep=0, count=1_000_000_000, seconds=_SECONDS)
    return reading, raised[0] if raised else None


def _shown_if_it_raises_alone(task: seqio.Task, role: DataRole, steps: Sequence[Any], index: int) -> str | None:
    """Preprocesses a single example of the source alone; returns its features in words if this raises."""
    one = _only(task, role, index)
    try:
        list(preprocessed(task, role, one, steps).as_numpy_iterator())
    except Exception:  # the same exception again, of any type
        return _shown(next(iter(one.as_numpy_iterator()), None))
    return None


def _only(task: seqio.Task, role: DataRole, index: int) -> tf.data.Dataset:
    """Returns a single example of a task's source."""
    return source_dataset(task, role.dataset).skip(index).take(1)


def _shown(example: Any) -> str:
    """Describes an example by its values, shortened, without the texts that SeqIO keeps beside their tokens."""
    if not isinstance(example, dict):
        return ""
    shown = []
    for name, value in example.items():
        if str(name).endswith("_pretokenized"):
            continue
        plain = value.decode(errors="replace") if isinstance(value, bytes) else value
        text = repr(plain.tolist() if isinstance(plain, (np.ndarray, np.generic)) else plain)
        shown.append(f"{name} {text if len(text) <= _LONGEST else f'{text[:_LONGEST]}...'}")
    return ", ".join(shown)


def sample_data(run: Resolved, report: StageReport, read_seconds: float) -> None:
    """Samples the tasks of a run, and looks for the end of each source that is read to its end.

    Args:
      run: receives the samples and the ends.
      report: receives findings for exceptions of the tasks, and notes on data that was not read.
      read_seconds: the time to read further in each split, to find examples that cannot be preprocessed.
    """
    sampler = _Sampler(run, report, read_seconds)
    for role, task in run.reads():
        split = role.dataset.split
        if split.split("[")[0] in task.splits or "+" in split:
            sampler.sample(role, task)


class _Sampler:
    """Samples one task after another; examples that were read for one dataset also serve others."""

    def __init__(self, run: Resolved, report: StageReport, read_seconds: float) -> None:
        self._run = run
        self._report = report
        self._read_seconds = read_seconds
        self._patience = hosts_on_each_core()
        self._until = time.monotonic() + self._patience * max(_SECONDS_IN_ALL, _SPLITS_IN_FULL * read_seconds)
        self._failed: set[tuple[str, str]] = set()
        self._broken: set[str] = set()

    def sample(self, role: DataRole, task: seqio.Task) -> None:
        """Samples a task for a dataset; an exception of its source or preprocessors becomes a finding."""
        where = (task.name, role.dataset.split)
        if where in self._failed or task.name in self._broken or not self._is_readable(role, task):
            return
        try:
            sample = self._sample(role, task)
            if self._run.is_read_to_the_end(role, task) and sample.endless is None and is_generated(task):
                self._run.ends[where] = self._run.ends.get(where) or self._end(role, task)
        except Exception as error:  # the next task may be fine
            self._failed.add(where)
            self._explain(error, task, role)
            return
        self._run.samples[role.parameter, task.name] = sample

    def _is_readable(self, role: DataRole, task: seqio.Task) -> bool:
        """Tells whether the task can be read; rules report a missing cache, missing data or missing lengths."""
        split = role.dataset.split
        uncached = self._run.standins.is_uncached(task)
        if task.requires_caching and not uncached and not (role.dataset.use_cached and cache_of(task)):
            if role.dataset.use_cached:
                self._report.leave_open(f"the examples of {task.name}: they are in no cache that can be read here")
            return False
        if cached := [folder for folder in map(str, seqio.get_global_cache_dirs()) if "://" in folder]:
            if role.dataset.use_cached and task.supports_caching and cache_of(task) is None and not uncached:
                self._report.leave_open(f"whether {task.name} is cached in {cached[0]}: it cannot be read here")
        elif tfds_problem(task, split):
            return False
        if remote := out_of_reach(task, split):
            self._report.leave_open(f"the examples of {task.name} {split}: {remote[0]} cannot be read here")
            return False
        if role.dataset.task_feature_lengths is None and needing_lengths(task):
            return False
        return files_of(task, split) != []

    def _sample(self, role: DataRole, task: seqio.Task) -> Sample:
        split = role.dataset.split
        cached = role.dataset.use_cached and bool(
            cache_of(task) or (task.requires_caching and self._run.standins.is_uncached(task))
        )
        use_cached = {each.parameter: bool(each.dataset.use_cached) for each in self._run.roles}
        for (parameter, name), other in self._run.samples.items():
            same = name == task.name and other.split == split and other.whole
            if same and use_cached[parameter] is bool(role.dataset.use_cached):
                return other
        batch = role.dataset.batch_size  # plan reports a batch size that is not a number (GIN08)
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
            self._report.leave_open(f"more examples of {task.name} {split}: {came} within {seconds:.0f} s")
        elif not sample.ended and not self._run.standins.source_of(task):
            name, size = f"{task.name} {split}", declared_size(task, split)
            if size is not None and size > sample.count:
                left = f"{size - sample.count:,} of {size:,} examples of {name}"
                self._report.leave_open(f"{left}: the first {sample.count:,} were read")
            else:
                self._report.leave_open(f"the examples of {name} after the first {sample.count:,}")
        return sample

    def _end(self, role: DataRole, task: seqio.Task) -> SourceEnd:
        end = find_end(task, role, self._seconds())
        if not end.ended and end.period is None:
            self._report.leave_open(
                f"whether {task.name} {role.dataset.split} ends: {end.read:,} examples of its source came"
            )
        return end

    def _explain(self, error: Exception, task: seqio.Task, role: DataRole) -> None:
        log_traceback(error)
        remote = _REMOTE.search(str(error)) if isinstance(error, tf.errors.OpError) else None
        if remote:  # most often a vocabulary
            self._report.leave_open(
                f"the examples of {task.name} {role.dataset.split}: {remote.group()} cannot be read here"
            )
        else:
            self._report.add([self._finding(error, task, role)])

    def _finding(self, error: Exception, task: seqio.Task, role: DataRole) -> Finding:
        """Builds the finding for an exception of a task, about one of its examples if the example is at fault."""
        place, where = self._run.registrations.place(task.name), f"task {task.name} {role.dataset.split}"

        def own(code: str, message: str, location: Location | None, fix: str) -> Finding:
            return Finding(code, Severity.ERROR, self._report.stage, message, location, fix)

        if is_empty(task, role):
            giver, fix = of_nothing(task)
            message = (
                f"task {task.name} has no example in split {role.dataset.split!r}{giver}, and its preprocessors cannot "
                f"take that: {error_text(root_cause(error))}"
            )
            location = place or self._run.config.location(role.key(self._run.config, "split"))
            return own("SEQ36", message, location, fix)
        finding = explain(error, self._report.stage, self._run.config)
        if finding.code == "SEQ06":
            made = preprocessed(task, role, source_dataset(task, role.dataset), steps_of(task))
            left = ", ".join(sorted(made.element_spec)) or "nothing"
            finding = dataclasses.replace(finding, message=f"{finding.message}; they leave: {left}")
        if finding.code in ("RUN01", "USR01"):
            # If the user's own code raised, SeqIO had no need of such an object.
            if finding.code == "RUN01" and (wrong := wrong_object(task)):
                self._broken.add(task.name)
                return own("USR01", wrong[0], place, wrong[1])
            at_fault = without_dataset(task, role)
            with contextlib.suppress(Exception):  # if there is no example yet, the first exception says everything
                at_fault = at_fault or example_at_fault(task, role)
            if at_fault is not None:
                message, location, fix = at_fault
                return own("USR01", message, location or place, fix)
        message, location = finding.message, finding.location
        if finding.code == "RUN01":  # SeqIO raised it
            message = f"the examples of {where} cannot be read: {message}"
            # Without a binding at fault, the line is only that of the call, and the mistake is in the task.
            location = location if finding.binding else place
        with contextlib.suppress(Exception):  # if the source itself raises, the first exception says everything
            pipeline = build(task, role)
            if pipeline.broken is not None:
                self._broken.add(task.name)  # in every split
                if none := pipeline.leaves_none:
                    part, feature = none
                    message = (
                        f"{part} leaves None as feature {feature} of task {task.name}, which {pipeline.broken.name} "
                        "cannot take: TensorFlow has no such value"
                    )
                    return own(
                        "SEQ37", message, part.place or place, f"leave {feature} out, or let it be '', empty text"
                    )
            of_rank = _WRONG_RANK.search(message)
            if evidence := pipeline.feature(of_rank[1]) if of_rank else pipeline.given_to_broken:
                message += f"; {evidence}"
        return dataclasses.replace(finding, message=message, location=location or place)

    def _seconds(self) -> float:
        return max(1.0, min(self._patience * SECONDS, self._left()))

    def _left(self) -> float:
        return max(0.0, self._until - time.monotonic())
