"""SEQ04 and SEQ36: tasks that are not registered, and sources with no examples or too few."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.resolve.rule import finds
from t5x_harness.spec import Severity

if TYPE_CHECKING:
    from t5x_harness.resolve.datasets import DataRole
    from t5x_harness.resolve.resolved import Resolved
    from t5x_harness.resolve.samples import Sample


SEQ04 = Mistake(
    "SEQ04",
    "task or mixture that nothing registered",
    why="SeqIO raises on the TPU and lists every task it knows; the module was not imported, or the name is misspelt.",
    bad=training("MIXTURE_OR_TASK_NAME = 'countign'", at="MIXTURE_OR_TASK_NAME = 'countign'"),
    good=training("MIXTURE_OR_TASK_NAME = 'counting'"),
)


@finds(SEQ04)
def unknown_task(run: Resolved) -> Iterator[Found]:
    """Finds each name that nothing registered; datasets that share the name share the finding."""
    import seqio

    names = sorted({*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()})
    said = set()
    for role in run.roles:
        if role.parameter in run.tasks or role.source in said:
            continue
        said.add(role.source)
        close = difflib.get_close_matches(role.source, names, n=3, cutoff=0.6)
        yield Found(
            f"no task or mixture is called {role.source!r}; {len(names)} are registered"
            + (f", the closest {', '.join(map(repr, close))}" if close else ""),
            role.key(run.config, "mixture_or_task_name"),
            f"use {close[0]!r}" if close else "import the module that registers it in the Gin file",
        )


_MANY = "'inputs': ['one two', 'three'] * 64, 'targets': ['1 2', '3'] * 64"
_TWO = "'inputs': ['one two', 'three'], 'targets': ['1 2', '3']"
_COUNTED = "splits=('train', 'validation'), num_input_examples={'train': 128, 'validation': 128}"
_HALF = 0.5
"""Share of the examples that a source says to have, below which it can hardly be the same data."""


SEQ36 = Mistake(
    "SEQ36",
    "split with no example, or with fewer than it says or than fill one batch",
    why=(
        "A wrong file pattern or a filter that drops everything trains on nothing, or on the few examples that are "
        "left, over and over: T5X repeats them until the batch is full."
    ),
    bad=training(
        files=examples.files(f"{{{_TWO}}})", f"{{{_TWO}}}).filter(lambda x: False)"), at="seqio.TaskRegistry.add("
    ),
    good=training(
        files={
            "counting.py": examples.TASK.replace(_TWO, _MANY).replace("splits=('train', 'validation')", _COUNTED),
        }
    ),
)


@finds(SEQ36)
def no_examples(run: Resolved) -> Iterator[Found]:
    """Finds splits without examples, an error, or with far fewer than anyone would train on, a warning."""
    said = set()
    for role, sample in run.sampled():
        where = (sample.task.name, sample.split)
        problem, fix, severity = _too_few(run, role, sample)
        if problem and where not in said:
            said.add(where)
            key = role.key(run.config, "split")
            # A split that the user did not choose is the source's fault.
            place = None if run.config.is_of_user(key) else run.registrations.place(sample.task.name)
            yield Found(problem, key, fix, severity=severity, location=place)


def _too_few(run: Resolved, role: DataRole, sample: Sample) -> tuple[str, str, Severity]:
    """Returns what is wrong with the number of examples, the fix, and how bad it is; an empty text if nothing is."""
    from t5x_harness.resolve.samples import SOURCE_EXAMPLES
    from t5x_harness.standins.task_data import declared_size

    task, split, count = sample.task, sample.split, sample.count
    if sample.late or (count and run.standins.source_of(task)):
        return "", "", Severity.NOTE
    if not count:
        among = "" if sample.ended else f" among the first {SOURCE_EXAMPLES:,} of its source"
        return (
            f"task {task.name} has no example in split {split!r}{among}",
            "check the source's files and filters",
            Severity.ERROR,
        )
    declared = None if role.dataset.use_cached else declared_size(task, split)
    if declared and sample.source_size is not None and sample.source_size < _HALF * declared:
        return (
            f"split {split!r} of task {task.name} says to have {declared:,} examples (num_input_examples), and its "
            f"source has {sample.source_size:,}",
            "check the source's files, or correct num_input_examples",
            Severity.WARNING,
        )
    batch = role.dataset.batch_size
    if role.name == "train" and sample.ended and isinstance(batch, int) and count < batch:
        return (
            f"split {split!r} of task {task.name} has {count} example{'s' if count > 1 else ''} in all, less than one "
            f"batch of {batch}: every step trains on the same ones",
            "check the source's files and filters",
            # Who counts the examples of a source, and counts right, knows how few they are.
            Severity.NOTE if declared else Severity.WARNING,
        )
    return "", "", Severity.NOTE
