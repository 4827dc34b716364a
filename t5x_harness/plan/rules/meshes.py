"""MSH02 to MSH05, MSH10, MSH11, SEQ28, GIN08 and GIN20: batches, files and partitions that a mesh cannot share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from t5x_harness.findings.rule import Found, Rule, training
from t5x_harness.lint.rules.names import GIN20
from t5x_harness.lint.rules.numbers import MSH02, MSH03, uneven_batch
from t5x_harness.lint.rules.values import GIN08
from t5x_harness.spec import Severity

if TYPE_CHECKING:
    from t5x_harness.gin.config import BindingKey
    from t5x_harness.plan.planned import Planned

_MICROBATCHES = "trainer.Trainer.num_microbatches"
_PARTITIONS = "partitioning.PjitPartitioner.num_partitions"
_SUBMESH = "partitioning.PjitPartitioner.model_parallel_submesh"


@MSH02
def batch_on_mesh(plan: Planned) -> Iterator[Found]:
    """Finds each batch size that the data axis does not divide; datasets that share a binding share the finding."""
    data = plan.layout.positions
    bad: dict[tuple[BindingKey | None, int], list[str]] = {}
    for role in plan.run.roles:
        batch = role.dataset.batch_size
        if isinstance(batch, int) and batch > 0 and batch % data:
            bad.setdefault((role.key(plan.config, "batch_size"), batch), []).append(role.name)
    for (key, batch), names in bad.items():
        message, near = uneven_batch(names, batch, data, plan.partitioned_by)
        yield Found(message, key, f"set {key.short if key else 'batch_size'} to {near}")


@GIN08
def batch_type(plan: Planned) -> Iterator[Found]:
    """Finds each dataset whose batch size is not a number of examples."""
    bad: dict[tuple[BindingKey | None, str], list[str]] = {}
    for role in plan.run.roles:
        batch = role.dataset.batch_size
        if not isinstance(batch, int) or batch < 1:
            kind = f", a {type(batch).__name__}" if not isinstance(batch, int) else ""
            bad.setdefault((role.key(plan.config, "batch_size"), f"{batch!r}{kind}"), []).append(role.name)
    for (key, value), names in bad.items():
        of = " and ".join(names)
        yield Found(f"the batch size of {of} is {value}", key, "give a whole number from 1 up, without quotes")


@Rule(
    "MSH11",
    "batch size that the number of microbatches does not divide",
    why=(
        "T5X raises while it traces the train step, after it built the datasets and restored the checkpoint. "
        "Microbatches that the data axis does not divide train, but some devices compute more than others: a warning."
    ),
    bad=training("from t5x import trainer", f"{_MICROBATCHES} = 3", "BATCH_SIZE = 16", at=f"{_MICROBATCHES} = 3"),
    good=training("from t5x import trainer", f"{_MICROBATCHES} = 2", "BATCH_SIZE = 16"),
)
def microbatches(plan: Planned) -> Iterator[Found]:
    """Finds a batch that does not divide into equal microbatches, or microbatches that the mesh cannot share evenly."""
    parts, positions = plan.microbatches, plan.layout.positions
    batch = next((r.batch_size for r in plan.run.roles if r.parameter == "train_dataset_cfg"), None)
    if batch is None or parts == 1:
        return
    key = plan.microbatches_key
    name = key.short if key else "num_microbatches"
    if batch % parts:
        message = f"the batch size {batch} is not divisible by {parts} microbatches"
        yield Found(message, key, f"set {name} to a divisor of {batch}")
    elif (batch // parts) % positions and not batch % positions:
        fitting = batch // positions
        yield Found(
            f"{parts} microbatches of the batch size {batch} have {batch // parts} examples each, and the mesh's "
            f"data axis has {positions} positions: T5X shares them unevenly",
            key,
            f"set {name} to {'1' if fitting == 1 else f'a divisor of {fitting}'}, or enlarge the batch",
            severity=Severity.WARNING,
        )


@Rule(
    "MSH10",
    "evaluation of whole batches beside training in microbatches",
    severity=Severity.NOTE,
    why=(
        "num_microbatches divides the batches of training alone. T5X compiles the step of train_eval for its whole "
        "batch, before training begins, and it may need more memory than a train step: `RESOURCE_EXHAUSTED` in "
        "`compile_eval`. Whether both fit, the TPU compiler says (`--aot`)."
    ),
    bad=training("from t5x import trainer", f"{_MICROBATCHES} = 8", at=f"{_MICROBATCHES} = 8"),
    good=training("from t5x import trainer", f"{_MICROBATCHES} = 8", "train_eval/utils.DatasetConfig.batch_size = 16"),
)
def undivided_evaluation(plan: Planned) -> Iterator[Found]:
    """Finds a dataset of train_eval whose batches are larger than the microbatches of training."""
    sizes = {role.parameter: (role.batch_size, role.scope) for role in plan.run.roles}
    (batch, _), (whole, scope) = (sizes.get(f"{name}_dataset_cfg", (None, "")) for name in ("train", "train_eval"))
    parts, positions = plan.microbatches, plan.layout.positions
    if parts == 1 or not batch or not whole or whole <= batch // parts:
        return
    part = positions * math.ceil(batch // parts / positions)
    if whole > part:
        yield Found(
            f"training takes {batch // parts} of the {batch} examples at once, in {parts} microbatches, and train_eval "
            f"takes {whole}: its step is compiled for all of them, and may need more memory",
            plan.microbatches_key,
            f"bind {scope}/utils.DatasetConfig.batch_size = {part}",
        )


SUBMESH = dataclasses.replace(MSH03, name="MSH03")
MSH04 = Rule(
    "MSH04",
    "submesh that does not fill whole hosts, nor hosts it",
    name="HostsCut",
    why=(
        "T5X tiles a pod by hosts, and asserts in each dimension that the submesh is a factor or a multiple of one "
        "host's devices. It does so on pods only, once they are allocated."
    ),
    bad=training(f"{_SUBMESH} = (3, 2, 1, 1)", slice="v4:6x2x2", at=_SUBMESH),
    good=training(f"{_SUBMESH} = (2, 2, 1, 1)", "BATCH_SIZE = 120", slice="v4:6x2x2"),
)


@Rule(
    "MSH05",
    "num_partitions that a submesh of another size overrides",
    severity=Severity.WARNING,
    why="T5X reads num_partitions only where model_parallel_submesh is None; with both it logs an error and goes on.",
    bad=training(f"{_PARTITIONS} = 4", f"{_SUBMESH} = (1, 1, 1, 2)", at=_PARTITIONS),
    good=training(f"{_SUBMESH} = (1, 1, 1, 2)"),
)
def unread_partitions(plan: Planned) -> Iterator[Found]:
    """Finds partitions that a submesh overrides; 1, the default of T5X's run configs, counts as not set."""
    config = plan.config
    found = [config.find(name) for name in ("num_partitions", "model_parallel_submesh")]
    keys = [config.owner(key) for key in found if key]
    if len(keys) < 2:
        return
    number, submesh = config.value(keys[0]), config.value(keys[1])
    if isinstance(number, int) and number > 1 and submesh and math.prod(submesh) != number:
        yield Found(
            f"{keys[0].short} is {number} and not read: model_parallel_submesh is {tuple(submesh)} "
            f"({config.origin(keys[1])}), so the model is split over {math.prod(submesh)} devices",
            keys[0],
            f"remove one of them, or set num_partitions to {math.prod(submesh)}",
        )


@GIN20
def uncalled(plan: Planned) -> Iterator[Found]:
    """Finds a schedule that is not called; without a partitioner, a run does not get this far."""
    rate = plan.learning_rate
    if rate is not None and rate.is_uncalled and rate.schedule is not None:
        key = rate.schedule.key
        value = plan.config.value(key)
        yield Found(f"{key.short} is {value!r}, which is not a schedule but what makes one", key, f"write {value!r}()")


@Rule(
    "SEQ28",
    "source with fewer files than data shards on the slice",
    severity=Severity.NOTE,
    why=(
        "SeqIO deals out files to hosts. With fewer files than data shards it deals out examples instead: each host "
        "reads and decodes everything and throws most of it away, and a restart sees the same few files again. A "
        "source that is read without a task refuses: `Dataset has too few files to shard`."
    ),
    bad=training(slice="v3-32"),
    good=training(slice="v3-8"),
)
def few_files(plan: Planned) -> Iterator[Found]:
    """Finds each task of the training data that has fewer files than the pod has data shards."""
    shards = plan.layout.shards
    for role in plan.run.roles if shards > 1 else ():
        if role.parameter != "train_dataset_cfg":
            continue
        for task in plan.run.tasks[role.parameter]:
            files = _files(task, role.dataset.split)
            if files is not None and files < shards:
                number = f"{files} file{'' if files == 1 else 's'}"
                yield Found(
                    f"{task.name} {role.dataset.split} has {number}, and the hosts of {plan.slice.name} read "
                    f"{shards} parts: each reads all of it and keeps one example in {shards}",
                    role.key(plan.config, "mixture_or_task_name"),
                    f"write the data to at least {shards} files, or cache the task",
                )


def _files(task: Any, split: str) -> int | None:
    """Returns the number of files of a task's source; None if it can divide its data freely, or cannot tell."""
    try:
        if task.source.supports_arbitrary_sharding or split not in task.splits:
            return None
        return len(task.source.list_shards(split=split))
    except Exception:  # a user's own source; its mistakes show when it is read
        return None
