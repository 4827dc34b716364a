"""SEQ28: fewer files than hosts that read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.plan.rule import finds
from t5x_harness.spec import Severity

if TYPE_CHECKING:
    from t5x_harness.plan.planned import Planned


SEQ28 = Mistake(
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


@finds(SEQ28)
def few_files(plan: Planned) -> Iterator[Found]:
    """Finds each task of the train data with fewer files than the pod has data shards."""
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
    """Files of a task's source; None where it deals out any number of parts itself, or cannot tell."""
    try:
        if task.source.supports_arbitrary_sharding or split not in task.splits:
            return None
        return len(task.source.list_shards(split=split))
    except Exception:  # a source of the user's; what is wrong with it shows when it is read
        return None
