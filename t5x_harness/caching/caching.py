"""Writes caches: chooses tasks, skips existing caches, and checks the splits before they count as complete."""

import difflib
import os
import re
from collections.abc import Callable, Iterator, Sequence

import seqio
import tensorflow as tf

from t5x_harness.caching.request import CachedSplit, CachedTask, CacheError, CacheRequest
from t5x_harness.caching.splits import (
    COMPLETED,
    PARTS,
    STANDINS,
    Progress,
    SplitWriter,
    alone_in,
    empty,
    read_json,
    write_json,
)
from t5x_harness.upstream.seqio import forget_cache, preprocessors

Prepare = Callable[[seqio.Task], Sequence[str]]
"""Gives a task stand-ins for its data and returns descriptions of them, or raises CacheError if the data is missing."""


def tasks_of(request: CacheRequest) -> Sequence[seqio.Task]:
    """Returns the requested tasks, sorted by name.

    Raises:
      CacheError: a pattern is invalid, or matches no task.
    """
    names = sorted(seqio.TaskRegistry.names())
    chosen = set(names if not request.tasks else ())
    for pattern in request.tasks:
        found = _matching(pattern, names)
        if not found:
            raise CacheError(f"no task is called {pattern}{_instead(pattern, names)}")
        chosen.update(found)
    for pattern in request.excluded:
        chosen.difference_update(_matching(pattern, names))
    if not chosen:
        raise CacheError("no task is left to cache: name the modules that register them, --module_import=my.tasks")
    return [seqio.TaskRegistry.get(name) for name in sorted(chosen)]


def _matching(pattern: str, names: Sequence[str]) -> list[str]:
    try:
        return [name for name in names if re.fullmatch(pattern, name)]
    except re.error as error:
        raise CacheError(f"{pattern!r} is not a regular expression: {error}") from None


def _instead(name: str, tasks: Sequence[str]) -> str:
    if name in seqio.MixtureRegistry.names():
        parts = ",".join(task.name for task in seqio.MixtureRegistry.get(name).tasks)
        return f", but a mixture: cache its tasks, --tasks={parts}"
    near = difflib.get_close_matches(name, tasks, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; registered are {', '.join(tasks)}" if tasks else "; none is registered: --module_import=my.tasks"


def cache(request: CacheRequest, task: seqio.Task, progress: Progress, prepare: Prepare) -> CachedTask:
    """Caches a task if this is possible and has not been done yet.

    Args:
      request: the tasks to cache, and the folder for the caches.
      task: one of the request's tasks.
      progress: called with the task, the split, the current step, and the number of examples so far.
      prepare: called before the task's data is read.

    Raises:
      CacheError: the task's examples cannot be stored or differ each time, or another process is caching it.
    """
    folder = os.path.join(request.folder, seqio.get_task_dir_from_name(task.name))
    if (why := _cannot_be_cached(task)) is not None:
        return CachedTask(task.name, None, left_out=why)
    forget_cache(task)
    there = task.cache_dir
    if there and there != folder and not request.ignore_other_caches:
        return CachedTask(task.name, there, left_out=f"it is cached in {there}")
    if _is_complete(folder) and not request.overwrite:
        generated = " with generated examples" if read_json(f"{folder}/{STANDINS}") else ""
        return CachedTask(
            task.name, folder, left_out=f"it is cached in {folder}{generated}; --overwrite writes it anew"
        )
    standins = prepare(task)
    with alone_in(folder) as lock:
        if _is_complete(folder):
            if not request.overwrite:  # another process has just written it
                return CachedTask(task.name, folder, left_out=f"it is cached in {folder}")
            empty(folder)

        def guarded(name: str, split: str, step: str, examples: int) -> None:
            lock.renew()
            progress(name, split, step, examples)

        splits = tuple(_write(request, task, folder, guarded, standins))
        lock.renew()
        with tf.io.gfile.GFile(f"{folder}/{COMPLETED}", "w") as file:
            file.write("")
        return CachedTask(task.name, folder, splits)


def _is_complete(folder: str) -> bool:
    found: bool = tf.io.gfile.exists(f"{folder}/{COMPLETED}")
    return found


def _cannot_be_cached(task: seqio.Task) -> str | None:
    """Returns why SeqIO would not read a task from a cache, and the fix."""
    if task.supports_caching:
        return None
    if not task.source.caching_permitted:
        return "its source says caching_permitted=False"
    steps = [getattr(step, "__name__", type(step).__name__) for step in preprocessors(task)]
    after = "tokenize" if "tokenize" in steps else None
    where = f"after {after}" if after else "after the last step that needs no lengths"
    return (
        f"its preprocessors have no seqio.CacheDatasetPlaceholder(): put one {where}, before what cuts or appends "
        f"({', '.join(steps)})"
    )


def _write(
    request: CacheRequest, task: seqio.Task, folder: str, progress: Progress, standins: Sequence[str]
) -> Iterator[CachedSplit]:
    splits = tuple(task.splits)
    if not splits:
        raise CacheError(f"task {task.name} has no splits")
    writers = [SplitWriter(task, split, folder, request, progress) for split in splits]
    for writer in writers:
        writer.write_parts()
    for writer in writers:
        yield writer.write_shards()
    for writer in writers:
        if request.check:
            writer.compare()
    tf.io.gfile.rmtree(f"{folder}/{PARTS}")
    if standins:
        write_json(f"{folder}/{STANDINS}", list(standins))
