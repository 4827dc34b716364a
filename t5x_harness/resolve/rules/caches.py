"""SEQ01, SEQ02 and SEQ03: offline caches that are asked for, or needed, and not there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.resolve.rule import finds
from t5x_harness.spec import Severity

if TYPE_CHECKING:
    import seqio

    from t5x_harness.gin.config import BindingKey
    from t5x_harness.resolve.datasets import DataRole
    from t5x_harness.resolve.resolved import Resolved

_PLACEHOLDER = (
    "[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]",
    "[seqio.preprocessors.tokenize, seqio.CacheDatasetPlaceholder(), seqio.preprocessors.append_eos]",
)
_REQUIRED = (_PLACEHOLDER[0], _PLACEHOLDER[1].replace("Placeholder()", "Placeholder(required=True)"))


def _once(run: Resolved, cached: bool) -> Iterator[tuple[DataRole, seqio.Task]]:
    """Yields each task once for all datasets that take their use_cached from one binding."""
    said = set()
    for role in run.roles:
        key = role.key(run.config, "use_cached")
        for task in run.tasks[role.parameter]:
            if bool(role.dataset.use_cached) is cached and (task.name, key) not in said:
                said.add((task.name, key))
                yield role, task


def _name(key: BindingKey | None) -> str:
    return key.short if key else "use_cached"


SEQ01 = Mistake(
    "SEQ01",
    "cached examples asked for that are in no cache folder",
    why=(
        "`USE_CACHED_TASKS = True` is what T5X's run configs say by default; SeqIO stops the job with `does not exist "
        "in any of the task cache directories`."
    ),
    bad=training("USE_CACHED_TASKS = True", files=examples.files(*_PLACEHOLDER), at="USE_CACHED_TASKS = True"),
    good=training("USE_CACHED_TASKS = False", files=examples.files(*_PLACEHOLDER)),
)


@finds(SEQ01)
def missing_cache(run: Resolved) -> Iterator[Found]:
    """Finds each task that is to be read from its cache and whose cache does not exist."""
    import seqio

    from t5x_harness.standins.task_data import cache_of

    folders = [str(folder) for folder in seqio.get_global_cache_dirs()]
    if any("://" in folder for folder in folders):
        return  # said to be not checked where the data is read
    searched = f"none of {', '.join(folders)} has them" if folders else "no cache folder is set"
    for role, task in _once(run, cached=True):
        if task.supports_caching and cache_of(task) is None:
            key = role.key(run.config, "use_cached")
            yield Found(
                f"use_cached is True, and the examples of task {task.name} are not cached: {searched}",
                key,
                f"set {_name(key)} = False, or cache the task (t5x-harness cache, seqio_cache_tasks) and name "
                "the folder where the task is registered: seqio.add_global_cache_dirs(['FOLDER'])",
            )


SEQ02 = Mistake(
    "SEQ02",
    "cached examples asked for of a task that cannot be cached",
    severity=Severity.WARNING,
    why=(
        "Without a `CacheDatasetPlaceholder` in the task SeqIO drops `use_cached` with a line in the log: every host "
        "preprocesses while the TPU waits."
    ),
    bad=training("USE_CACHED_TASKS = True", at="USE_CACHED_TASKS = True"),
    good=training("USE_CACHED_TASKS = False"),
)


@finds(SEQ02)
def ignored_cache(run: Resolved) -> Iterator[Found]:
    """Finds each task that is to be read from a cache and has no place for one."""
    for role, task in _once(run, cached=True):
        if not task.supports_caching:
            key = role.key(run.config, "use_cached")
            yield Found(
                f"use_cached is True, and task {task.name} has no CacheDatasetPlaceholder among its "
                "preprocessors: SeqIO preprocesses its source on the fly all the same",
                key,
                f"set {_name(key)} = False if that is meant, or put the placeholder into the task and cache it",
            )


SEQ03 = Mistake(
    "SEQ03",
    "task that needs its cache, read without it",
    why="SeqIO refuses to preprocess a task on the fly whose `CacheDatasetPlaceholder` has `required=True`.",
    bad=training(files=examples.files(*_REQUIRED), at="USE_CACHED_TASKS"),
    good=training(files=examples.files(*_PLACEHOLDER)),
)


@finds(SEQ03)
def needed_cache(run: Resolved) -> Iterator[Found]:
    """Finds each task that can only be read from a cache."""
    for role, task in _once(run, cached=False):
        if task.requires_caching:
            key = role.key(run.config, "use_cached")
            yield Found(
                f"task {task.name} can only be read from a cache (its CacheDatasetPlaceholder has required=True), "
                "and use_cached is False",
                key,
                f"set {_name(key)} = True and cache the task, or take required=True out of the task",
            )
