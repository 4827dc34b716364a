"""SEQ25: data that never ends, where all of it is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings import examples
from t5x_harness.findings.examples import evaluating
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.resolve.rule import finds
from t5x_harness.spec import Mode, Severity

if TYPE_CHECKING:
    from t5x_harness.resolve.datasets import DataRole
    from t5x_harness.resolve.resolved import Resolved
    from t5x_harness.resolve.samples import Sample

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
                _fix(run, sample.split),
                severity=severity,
            )


def _problem(run: Resolved, sample: Sample) -> tuple[str, Severity]:
    """Returns what is wrong with a split's end, and how sure that is; an empty text if nothing is."""
    from t5x_harness.standins.task_data import declared_size

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


def _fix(run: Resolved, split: str) -> str:
    end = f"let the source end in split {split!r}"
    return end if run.config.mode is Mode.INFER else f"{end}, or bind seqio.Evaluator.num_examples"
