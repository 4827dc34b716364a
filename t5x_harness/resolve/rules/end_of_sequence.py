"""SEQ14 and SEQ41: targets that never end, and targets that end twice."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.resolve.rule import finds
from t5x_harness.spec import Severity

if TYPE_CHECKING:
    from t5x_harness.resolve.datasets import DataRole
    from t5x_harness.resolve.resolved import Resolved


SEQ14 = Mistake(
    "SEQ14",
    "targets without the end-of-sequence id",
    severity=Severity.WARNING,
    why="Training looks well, and decoding goes on to the maximum length: the model never saw an end.",
    bad=training(files=examples.files(", seqio.preprocessors.append_eos", ""), at="MIXTURE_OR_TASK_NAME"),
    good=training(),
)


@finds(SEQ14)
def no_end_of_sequence(run: Resolved) -> Iterator[Found]:
    """Finds each train task of which no sampled target ends with the end-of-sequence id."""
    for role, task, eos, targets in _whole_targets(run):
        if targets and not any(len(t) and t[-1] == eos for t in targets):
            yield Found(
                f"no sampled target of {task} ends with the end-of-sequence id {eos}, so decoding never learns to stop",
                role.key(run.config, "mixture_or_task_name"),
                "append seqio.preprocessors.append_eos and declare the feature with add_eos=True",
            )


SEQ41 = Mistake(
    "SEQ41",
    "targets with the end-of-sequence id twice",
    severity=Severity.WARNING,
    why=(
        "Two preprocessors append it. The model learns to write an end after the end: of each target one token is "
        "wasted, and its share of the loss and of the accuracy is too good to be true."
    ),
    bad=training(
        files=examples.files(
            "seqio.preprocessors.append_eos]", "seqio.preprocessors.append_eos, seqio.preprocessors.append_eos]"
        ),
        at="MIXTURE_OR_TASK_NAME",
    ),
    good=training(),
)


@finds(SEQ41)
def ends_twice(run: Resolved) -> Iterator[Found]:
    """Finds each train task of which every sampled target ends with the end-of-sequence id twice."""
    for role, task, eos, targets in _whole_targets(run):
        if targets and all(len(t) > 1 and t[-1] == t[-2] == eos for t in targets):
            yield Found(
                f"every sampled target of {task} ends with the end-of-sequence id {eos} twice",
                role.key(run.config, "mixture_or_task_name"),
                "append it in one preprocessor",
            )


def _whole_targets(run: Resolved) -> Iterator[tuple[DataRole, str, int, list[Any]]]:
    """Yields each train task with its end-of-sequence id and the sampled targets that were not cut at their length."""
    import numpy as np

    for role, sample in run.sampled():
        feature = sample.task.output_features.get("targets")
        eos = getattr(feature.vocabulary, "eos_id", None) if feature is not None else None
        if role.name != "train" or eos is None:
            continue
        # What was cut at its length may have lost the id there.
        longest = math.inf if sample.whole else (role.dataset.task_feature_lengths or {}).get("targets", math.inf)
        targets = [t for t in sample.values("targets") if np.ndim(t) == 1 and len(t) < longest]
        yield role, sample.task.name, eos, targets
