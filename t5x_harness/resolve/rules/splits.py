"""SEQ18, SEQ19, SEQ25, INF03, INF05 and INF11: splits, ends, metrics and features that a run needs of its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from t5x_harness.findings.rule import Found, Rule, evaluating, inferring, task_files, training
from t5x_harness.spec import Mode, Severity
from t5x_harness.system.misspelling import closest

if TYPE_CHECKING:
    from t5x_harness.resolve.datasets import DataRole
    from t5x_harness.resolve.resolved import Resolved
    from t5x_harness.resolve.samples import Sample

_MANY_ROUNDS = 10
"""The number of times that examples must repeat in the same order before this cannot be intended."""

_READ = "tf.data.Dataset.from_tensor_slices({'inputs': ['one two', 'three'], 'targets': ['1 2', '3']})"
_SPLIT = "utils.DatasetConfig.split = 'validation'"
_INFER = "infer_script.infer"
_DECODED_AS = f"{_INFER}.output_vocab_feature_name"


def _has_split(run: Resolved, role: DataRole, task: Any) -> bool:
    """Returns whether a task has the split: by name, or in TFDS's notation for a part of a split or several splits."""
    import seqio

    split = role.dataset.split
    if split in task.splits:
        return True
    by_name = role.name == "train_eval" or run.has_evaluator(role) or isinstance(role.provider, seqio.Mixture)
    if by_name or not isinstance(task.source, seqio.TfdsDataSource):
        return False
    return "+" in split or split.split("[")[0] in task.splits


def _lacking(run: Resolved, *, skipped: bool) -> Iterator[tuple[DataRole, Any, bool]]:
    """Yields every task that lacks the requested split, and whether others of its mixture have it.

    T5X skips such a task in training's evaluations, and if others have the split.
    """
    for role, task in run.reads():
        if not _has_split(run, role, task):
            left = any(_has_split(run, role, other) for other in run.tasks[role.parameter])
            skips = role.name in ("train_eval", "infer_eval") or (run.config.mode is not Mode.INFER and left)
            if skips is skipped:
                yield role, task, left


def _fatal(run: Resolved) -> Iterator[Found]:
    """Yields each missing split that T5X does not skip."""
    for role, task, _ in _lacking(run, skipped=False):
        yield Found(_what(role, task), role.key(run.config, "split"), _fix(role, task))


def _what(role: DataRole, task: Any) -> str:
    has = ", ".join(map(str, task.splits)) or "none"  # a name can be of any type
    return f"task {task.name} has no split {role.dataset.split!r} (it has: {has})"


def _fix(role: DataRole, task: Any, without: str = "") -> str:
    whole = role.dataset.split.split("[")[0]
    if whole in task.splits:
        return f"use {whole!r}: only whole splits can be read here"
    close = closest(role.dataset.split, (name for name in task.splits if isinstance(name, str)))
    return f"use {close!r}" if close else f"choose a split that it has{without}"


@Rule(
    "SEQ18",
    "split that a task does not have, so that T5X skips it",
    severity=Severity.WARNING,
    why=(
        "Without the split T5X only logs that there is nothing to evaluate, and trains to the end unevaluated; a "
        "mixture goes on without the task. An error where no task has the split, so that nothing is evaluated by its "
        "predictions, or where the split is one that your own config names."
    ),
    bad=training(
        files=task_files("splits=('train', 'validation')", "splits=('train',)"),
        at="include 't5x/configs/runs/pretrain.gin'",
    ),
    good=training(),
)
def skipped_split(run: Resolved) -> Iterator[Found]:
    """Finds each missing split that T5X skips."""
    for role, task, left in _lacking(run, skipped=True):
        key = role.key(run.config, "split")
        skips = "skips it" if left else "evaluates nothing"
        meant = run.has_evaluator(role) or run.config.is_of_user(key)
        parameter = f"{run.config.entry.removeprefix('__main__.')}.{role.parameter}"
        message = f"{_what(role, task)}: T5X {skips} without a word"
        fix = _fix(role, task, "" if left else f", or set {parameter} = None to train without it")
        yield Found(message, key, fix, severity=Severity.ERROR if meant and not left else Severity.WARNING)


@Rule(
    "SEQ19",
    "task without the split or the metrics that the run needs",
    why=(
        "T5X says `has no metrics for evaluation, or this mixture/task doesn't have provided split`, which leaves open "
        "which of the two it is, after the model was built and the checkpoint found."
    ),
    bad=evaluating("utils.DatasetConfig.split = 'tset'", at="utils.DatasetConfig.split"),
    good=evaluating("utils.DatasetConfig.split = 'validation'"),
)
def nothing_to_evaluate(run: Resolved) -> Iterator[Found]:
    """Finds each missing split and each dataset without metrics."""
    if run.config.mode is not Mode.INFER:
        yield from _fatal(run)
    for role in run.roles:
        if run.has_evaluator(role) and not any(run.is_evaluated(role, task) for task in run.tasks[role.parameter]):
            yield Found(
                f"{role.source} has no metric_fns, so nothing of it is evaluated by its predictions",
                role.key(run.config, "mixture_or_task_name"),
                "register the task with metric_fns",
                severity=Severity.ERROR if run.config.mode is Mode.EVAL else Severity.NOTE,
            )


@Rule(
    "INF11",
    "split to infer that the task does not have",
    why="Infer hands the split to the data source as it is, which ends with a bare `KeyError`.",
    bad=inferring("utils.DatasetConfig.split = 'tset'", at="utils.DatasetConfig.split"),
    good=inferring("utils.DatasetConfig.split = 'validation'"),
)
def inferred_split(run: Resolved) -> Iterator[Found]:
    """Finds each split to infer that does not exist."""
    if run.config.mode is Mode.INFER:
        yield from _fatal(run)


@Rule(
    "SEQ25",
    "endless split that is evaluated or inferred from",
    why=(
        "SeqIO's evaluator reads a whole split before it starts, and keeps it in memory: of a generator that begins "
        "anew, which training likes, it never sees the end. The job hangs until the host has no memory left."
    ),
    bad=evaluating(_SPLIT, files=task_files(_READ, f"{_READ}.repeat()"), at="utils.DatasetConfig.split"),
    good=evaluating(_SPLIT),
)
def endless(run: Resolved) -> Iterator[Found]:
    """Finds each split that is read to its end but has no end, or seems to have none."""
    for role, sample in run.sampled():
        if run.is_read_to_the_end(role, sample.task) and (problem := _without_end(run, sample)):
            reader = "SeqIO's evaluator" if run.has_evaluator(role) else "inference"
            limit = "" if run.config.mode is Mode.INFER else ", or bind seqio.Evaluator.num_examples"
            message = f"split {sample.split!r} of task {sample.task.name} {problem[0]}, and {reader} reads all of it"
            fix = f"let the source end in split {sample.split!r}{limit}"
            yield Found(message, role.key(run.config, "split"), fix, severity=problem[1])


def _without_end(run: Resolved, sample: Sample) -> tuple[str, Severity] | None:
    """Returns what is wrong with a split's end, and how certain this is; None if nothing is."""
    from t5x_harness.standins.sources import declared_size

    if sample.endless:
        return "has no end", Severity.ERROR
    ending = run.ends.get((sample.task.name, sample.split))
    if ending is None or ending.ended:
        return None
    if ending.period and ending.rounds >= _MANY_ROUNDS:
        shown = f"{ending.period} examples" if ending.period > 1 else "one example"
        return f"gives the same {shown} again and again, {ending.rounds} times and no end", Severity.ERROR
    declared = declared_size(sample.task, sample.split)
    if declared and ending.read > declared:
        return f"goes on beyond its num_input_examples, {declared}: {ending.read:,} came and no end", Severity.WARNING
    return None


@Rule(
    "INF03",
    "more shards than there are examples to infer",
    why=(
        "A shard without an example restores and compiles, and then ends with `No chunk results found! One "
        "possible explanation is that your input did not contain any examples`."
    ),
    bad=inferring(_SPLIT, f"{_INFER}.num_shards = 4", f"{_INFER}.shard_id = 3", at=f"{_INFER}.num_shards"),
    good=inferring(_SPLIT, f"{_INFER}.num_shards = 2", f"{_INFER}.shard_id = 1"),
)
def empty_shard(run: Resolved) -> Iterator[Found]:
    """Finds more shards than examples: an error if the config's own shard is empty, a warning if others are."""
    config = run.config
    if config.mode is not Mode.INFER:
        return
    key = config.owner_of("num_shards")
    shards, shard = config.value(key), config.value(config.owner_of("shard_id"))
    for _, sample in run.sampled():
        if sample.ended and isinstance(shards, int) and 0 < sample.count < shards:
            by_files = len(sample.task.source.list_shards(sample.split)) >= shards
            own = isinstance(shard, int) and shard >= sample.count and not by_files
            yield Found(
                f"task {sample.task.name} has {sample.count} examples in split {sample.split!r}, and {shards} "
                f"shards are inferred: {f'shard {shard}, this one, is' if own else 'some are'} empty",
                key,
                f"set num_shards to at most {sample.count}",
                severity=Severity.ERROR if own else Severity.WARNING,
            )


@Rule(
    "INF05",
    "predictions that are decoded with a feature that the task does not have",
    why=(
        "T5X decodes predictions with the vocabulary of the feature `targets`, unless infer.output_vocab_feature_name "
        "names another. Without it, the first batches are predicted, and then writing them raises a `KeyError`."
    ),
    bad=inferring(_SPLIT, f"{_DECODED_AS} = 'answers'", at=_DECODED_AS),
    good=inferring(_SPLIT, f"{_DECODED_AS} = 'targets'"),
)
def no_vocabulary(run: Resolved) -> Iterator[Found]:
    """Finds each task that lacks the output feature whose vocabulary is needed."""
    config = run.config
    if config.mode is not Mode.INFER:
        return
    key = config.owner_of("output_vocab_feature_name")
    name = config.value(key) or "targets"
    for role, task in run.reads():
        if name not in task.output_features:
            yield Found(
                f"predictions are decoded with the vocabulary of feature {name!r}, and task {task.name} has "
                f"only {', '.join(task.output_features)}",
                key if config.is_bound(key) else role.key(config, "mixture_or_task_name"),
                "bind infer.output_vocab_feature_name to one of them",
            )
