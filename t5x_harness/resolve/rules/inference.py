"""INF03 and INF05: inference without examples, and predictions that nothing can decode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings.examples import inferring
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.resolve.rule import finds
from t5x_harness.spec import Mode, Severity

if TYPE_CHECKING:
    from t5x_harness.resolve.resolved import Resolved

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
