"""SEQ18, SEQ19, SEQ25, INF03, INF05 and INF11: splits, ends, metrics and features that a run needs of its tasks."""

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
    from t5x_harness.resolve.samples import Sample


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


_MANY_ROUNDS = 10
"""How often the same examples must come again, in the same order, until that cannot be intended."""

_READ = "tf.data.Dataset.from_tensor_slices({'inputs': ['one two', 'three'], 'targets': ['1 2', '3']})"
_SPLIT = "utils.DatasetConfig.split = 'validation'"


SEQ25 = Mistake(
    "SEQ25",
    "endless split that is evaluated or inferred from",
    why=(
        "SeqIO's evaluator reads a whole split before it starts, and keeps it in memory: of a generator that begins "
        "anew, which training likes, it never sees the end. The job hangs until the host has no memory left."
    ),
    bad=evaluating(_SPLIT, files=examples.files(_READ, f"{_READ}.repeat()"), at="utils.DatasetConfig.split"),
    good=evaluating(_SPLIT),
)


@finds(SEQ25)
def endless(run: Resolved) -> Iterator[Found]:
    """Finds each split that is read to its end and has none, or seems to have none."""
    said = set()
    for role, sample in run.sampled():
        where = (sample.task.name, sample.split)
        if where in said or not run.is_read_to_the_end(role, sample.task):
            continue
        problem, severity = _problem(run, sample)
        if problem:
            said.add(where)
            yield Found(
                f"split {sample.split!r} of task {sample.task.name} {problem}, and {_reader(run, role)} reads all "
                "of it",
                role.key(run.config, "split"),
                _let_it_end(run, sample.split),
                severity=severity,
            )


def _problem(run: Resolved, sample: Sample) -> tuple[str, Severity]:
    """Returns what is wrong with a split's end, and how sure that is; an empty text if nothing is."""
    from t5x_harness.standins.sources import declared_size

    if sample.endless:
        return "has no end", Severity.ERROR
    ending = run.ends.get((sample.task.name, sample.split))
    if ending is None or ending.ended:
        return "", Severity.ERROR
    if ending.period and ending.rounds >= _MANY_ROUNDS:
        shown = f"{ending.period} examples" if ending.period > 1 else "one example"
        return f"gives the same {shown} again and again, {ending.rounds} times and no end", Severity.ERROR
    declared = declared_size(sample.task, sample.split)
    if declared and ending.read > declared:
        return f"goes on beyond its num_input_examples, {declared}: {ending.read:,} came and no end", Severity.WARNING
    return "", Severity.ERROR


def _reader(run: Resolved, role: DataRole) -> str:
    return "SeqIO's evaluator" if run.has_evaluator(role) else "inference"


def _let_it_end(run: Resolved, split: str) -> str:
    end = f"let the source end in split {split!r}"
    return end if run.config.mode is Mode.INFER else f"{end}, or bind seqio.Evaluator.num_examples"


_SPLIT = "utils.DatasetConfig.split = 'validation'"


INF03 = Mistake(
    "INF03",
    "more shards than there are examples to infer",
    why=(
        "A shard without an example restores and compiles, and then ends with `No chunk results found! One "
        "possible explanation is that your input did not contain any examples`."
    ),
    bad=inferring(
        _SPLIT,
        "infer_script.infer.num_shards = 4",
        "infer_script.infer.shard_id = 3",
        at="infer_script.infer.num_shards",
    ),
    good=inferring(_SPLIT, "infer_script.infer.num_shards = 2", "infer_script.infer.shard_id = 1"),
)


@finds(INF03)
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


INF05 = Mistake(
    "INF05",
    "predictions that are decoded with a feature that the task does not have",
    why=(
        "T5X decodes predictions with the vocabulary of the feature `targets`, unless infer.output_vocab_feature_name "
        "names another. Without it, the first batches are predicted, and then writing them raises a `KeyError`."
    ),
    bad=inferring(
        _SPLIT,
        "infer_script.infer.output_vocab_feature_name = 'answers'",
        at="infer_script.infer.output_vocab_feature_name",
    ),
    good=inferring(_SPLIT, "infer_script.infer.output_vocab_feature_name = 'targets'"),
)


@finds(INF05)
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
