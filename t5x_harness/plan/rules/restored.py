"""CKP04 to CKP07: checkpoints that are not there, are no checkpoint, or are another model's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.plan.rule import Example, PlanRule
from t5x_harness.resolve import examples
from t5x_harness.spec import Finding

if TYPE_CHECKING:
    from t5x_harness.plan.planned import Planned

_BESIDE = {
    **examples.FILES,
    "model/checkpoint_500/commit_success.txt": "",
    "model/checkpoint_1000/commit_success.txt": "",
}


def _restore(path: str) -> tuple[str, ...]:
    """The lines that restore a checkpoint in the example's folder."""
    return (
        f"utils.RestoreCheckpointConfig.path = '{examples.FOLDER}/{path}'",
        "utils.RestoreCheckpointConfig.mode = 'specific'",
        "utils.CheckpointConfig.restore = @utils.RestoreCheckpointConfig()",
    )


class MissingCheckpoint(PlanRule):
    """A checkpoint that does not exist."""

    code = "CKP04"
    title = "checkpoint that does not exist"
    why = "T5X asserts with the path as its whole message, half a minute into the job."
    bad = Example(
        examples.trained(*_restore("model/checkpoint_1001")), files=_BESIDE, at="utils.RestoreCheckpointConfig.path"
    )
    good = Example(examples.trained(*_restore("model/checkpoint_1000")), files=_BESIDE)

    def check(self, plan: Planned) -> Iterator[Finding]:
        """Yields a finding if so; a warning where the path may exist on the machine that runs the job."""
        yield from _problem(self, plan)


class NoCheckpoint(PlanRule):
    """The folder of a run where one checkpoint is meant."""

    code = "CKP05"
    title = "folder of a run where one checkpoint is meant"
    why = "T5X says `Found improperly formatted checkpoint directory`, without saying what it looked for."
    bad = Example(examples.trained(*_restore("model")), files=_BESIDE, at="utils.RestoreCheckpointConfig.path")
    good = Example(examples.trained(*_restore("model/checkpoint_1000")), files=_BESIDE)

    def check(self, plan: Planned) -> Iterator[Finding]:
        """Yields a finding if so."""
        yield from _problem(self, plan)


def _problem(rule: MissingCheckpoint | NoCheckpoint, plan: Planned) -> Iterator[Finding]:
    problem = plan.start.problem
    if problem is not None and problem.code == rule.code:
        yield rule.finding(plan.config, problem.message, plan.start.key, problem.fix, severity=problem.severity)


class OtherShapes(PlanRule):
    """A checkpoint of a model of another size."""

    code = "CKP06"
    title = "checkpoint of a model of another size"
    why = "Flax raises a shape error for one parameter after the checkpoint was read."
    bad = Example(examples.trained(*_restore("model/checkpoint_1000")), files=_BESIDE)
    good = Example(examples.trained(), files=examples.FILES)

    def check(self, plan: Planned) -> Iterator[Finding]:
        """Yields a finding for the first array whose shape differs."""
        fit = plan.fit
        if fit is not None and fit.different:
            path, stored, ours = fit.different[0]
            yield self.finding(
                plan.config,
                f"{path} is {stored} in the checkpoint {plan.start.path} and {ours} in the model",
                plan.start.key,
                "use the checkpoint of this model's size, or the model of the checkpoint's",
            )


class OtherTree(PlanRule):
    """A checkpoint of a model of another structure."""

    code = "CKP07"
    title = "checkpoint of a model of another structure"
    why = "T5X stops with a pytree structure error after it read the checkpoint's tree."
    bad = Example(examples.trained(*_restore("model/checkpoint_1000")), files=_BESIDE)
    good = Example(examples.trained(), files=examples.FILES)

    def check(self, plan: Planned) -> Iterator[Finding]:
        """Yields a finding if the checkpoint lacks arrays of the model and nothing transforms it."""
        fit = plan.fit
        if fit is not None and fit.missing and not fit.different and not plan.start.transforms:
            more = f" and {len(fit.missing) - 1} more" if fit.missing[1:] else ""
            yield self.finding(
                plan.config,
                f"the checkpoint {plan.start.path} has no {fit.missing[0]}{more}",
                plan.start.key,
                "use a checkpoint of this architecture and number of layers",
            )
