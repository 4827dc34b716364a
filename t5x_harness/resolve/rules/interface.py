"""SEQ33: tasks and mixtures that were written for another version of SeqIO."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.resolve.rule import finds

if TYPE_CHECKING:
    from t5x_harness.resolve.resolved import Resolved

_OF_T5X = (
    "split",
    "use_cached",
    "shuffle",
    "seed",
    "shard_info",
    "num_epochs",
    "trim_output_features",
)
"""What T5X hands to a task's or mixture's ``get_dataset``, through SeqIO, besides the lengths."""

_CLASS = """\
class OldTask(seqio.Task):
    def get_dataset(
        self, sequence_length=None, split='train', use_cached=False, shuffle=True, seed=None, shard_info=None,
        num_epochs=1
    ):
        return super().get_dataset(
            sequence_length, split, use_cached, shuffle, seed=seed, shard_info=shard_info, num_epochs=num_epochs
        )


seqio.TaskRegistry.add(
    'counting',
"""


SEQ33 = Mistake(
    "SEQ33",
    "task class that does not take what T5X gives",
    why=(
        "T5X and SeqIO from different times, or your own task class for an older SeqIO, end in `get_dataset() got "
        "an unexpected keyword argument 'trim_output_features'`."
    ),
    bad=training(
        files=examples.files("seqio.TaskRegistry.add(\n    'counting',\n", f"{_CLASS}    task_cls=OldTask,\n"),
        at="seqio.TaskRegistry.add(",
    ),
    good=training(),
)


@finds(SEQ33)
def old_interface(run: Resolved) -> Iterator[Found]:
    """Finds each task or mixture whose ``get_dataset`` does not take what T5X passes."""
    from t5x_harness.resolve.datasets import provider_of

    providers = {task.name: task for tasks in run.tasks.values() for task in tasks}
    providers |= {provider_of(role).name: provider_of(role) for role in run.roles}
    for provider in providers.values():
        refused = _refused(provider.get_dataset)
        if refused:
            yield Found(
                f"{type(provider).__name__}.get_dataset of {provider.name} does not take {refused}, which T5X gives it",
                None,
                "take **kwargs and hand them on, or install a SeqIO and a T5X of the same time",
                location=run.registrations.place(provider.name),
            )


def _refused(get_dataset: object) -> str:
    """Returns the arguments that a method does not take, in words."""
    parameters = inspect.signature(get_dataset).parameters.values()  # type: ignore[arg-type]
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return ""
    taken = {p.name for p in parameters if p.kind is not inspect.Parameter.POSITIONAL_ONLY}
    return ", ".join(name for name in _OF_T5X if name not in taken)
