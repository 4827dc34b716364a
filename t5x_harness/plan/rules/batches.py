"""MSH02, MSH11 and GIN08: batch sizes that the mesh or the microbatches cannot share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings.examples import training
from t5x_harness.plan.rule import PlanRule
from t5x_harness.spec import Finding, Severity

if TYPE_CHECKING:
    from t5x_harness.gin.config import BindingKey
    from t5x_harness.plan.planned import Planned


class BatchOnMesh(PlanRule):
    """A batch that the data axis does not divide."""

    code = "MSH02"
    title = "batch size that the mesh's data axis does not divide"
    why = (
        "T5X refuses it once the TPU is allocated. On a CPU without the harness it passes, because T5X's CPU mesh has "
        "one data position, whatever num_partitions says."
    )
    bad = training("BATCH_SIZE = 12", at="BATCH_SIZE = 12")
    good = training("BATCH_SIZE = 16")

    def check(self, plan: Planned) -> Iterator[Finding]:
        """Yields a finding for each binding of such a batch size; datasets that share it share its mistake."""
        data = plan.layout.positions
        bad: dict[tuple[BindingKey | None, int], list[str]] = {}
        for role in plan.run.roles:
            batch = role.dataset.batch_size
            if isinstance(batch, int) and batch > 0 and batch % data:
                bad.setdefault((role.key(plan.config, "batch_size"), batch), []).append(role.name)
        for (key, batch), names in bad.items():
            near = sorted({max(1, batch // data) * data, math.ceil(batch / data) * data})
            yield self.finding(
                f"the batch size of {' and '.join(names)} is {batch}, and the mesh's data axis has {data} positions: "
                f"{batch} / {data} leaves {batch % data}",
                key,
                f"set {key.short if key else 'batch_size'} to {' or '.join(map(str, near))}",
            )


class BatchType(PlanRule):
    """A batch size that is not a number of examples."""

    code = "GIN08"
    title = "batch size that is not a whole number from 1 up"
    why = "T5X computes with it after it built the datasets, and dies with `not all arguments converted`."
    bad = training("BATCH_SIZE = '16'", at="BATCH_SIZE = '16'")
    good = training("BATCH_SIZE = 16")

    def check(self, plan: Planned) -> Iterator[Finding]:
        """Yields a finding for each dataset with one."""
        bad: dict[tuple[BindingKey | None, str], list[str]] = {}
        for role in plan.run.roles:
            batch = role.dataset.batch_size
            if not isinstance(batch, int) or batch < 1:
                kind = f", a {type(batch).__name__}" if not isinstance(batch, int) else ""
                bad.setdefault((role.key(plan.config, "batch_size"), f"{batch!r}{kind}"), []).append(role.name)
        for (key, value), names in bad.items():
            of = " and ".join(names)
            yield self.finding(
                f"the batch size of {of} is {value}", key, "give a whole number from 1 up, without quotes"
            )


class Microbatches(PlanRule):
    """A batch that cannot be cut into equal microbatches, or microbatches that the mesh cannot share evenly."""

    code = "MSH11"
    title = "batch size that the number of microbatches does not divide"
    why = (
        "T5X raises while it traces the train step, after it built the datasets and restored the checkpoint. "
        "Microbatches that the data axis does not divide train, but some devices compute more than others: a warning."
    )
    bad = training(
        "from t5x import trainer",
        "trainer.Trainer.num_microbatches = 3",
        "BATCH_SIZE = 16",
        at="trainer.Trainer.num_microbatches = 3",
    )
    good = training("from t5x import trainer", "trainer.Trainer.num_microbatches = 2", "BATCH_SIZE = 16")

    def check(self, plan: Planned) -> Iterator[Finding]:
        from t5x_harness.plan.batches import batch_size, microbatches_key, num_microbatches

        parts, positions = num_microbatches(plan), plan.layout.positions
        batch = next((batch_size(r) for r in plan.run.roles if r.parameter == "train_dataset_cfg"), None)
        if batch is None or parts == 1:
            return
        key = microbatches_key(plan)
        name = key.short if key else "num_microbatches"
        if batch % parts:
            yield self.finding(
                f"the batch size {batch} is not divisible by {parts} microbatches",
                key,
                f"set {name} to a divisor of {batch}",
            )
        elif (batch // parts) % positions and not batch % positions:
            fitting = batch // positions
            yield self.finding(
                f"{parts} microbatches of the batch size {batch} have {batch // parts} examples each, and the mesh's "
                f"data axis has {positions} positions: T5X shares them unevenly",
                key,
                f"set {name} to {'1' if fitting == 1 else f'a divisor of {fitting}'}, or enlarge the batch",
                severity=Severity.WARNING,
            )
