"""MSH02, MSH11 and GIN08: batch sizes that the mesh or the microbatches cannot share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.plan.rule import Example, PlanRule
from t5x_harness.resolve import examples
from t5x_harness.spec import Finding, Mode

if TYPE_CHECKING:
    from t5x_harness.plan.planned import Planned
    from t5x_harness.resolve.gin_config import BindingKey


class BatchOnMesh(PlanRule):
    """A batch that the data axis does not divide."""

    code = "MSH02"
    title = "batch size that the mesh's data axis does not divide"
    why = (
        "T5X refuses it once the TPU is allocated. On a CPU without the harness it passes, because T5X's CPU mesh has "
        "one data position, whatever num_partitions says."
    )
    bad = Example(examples.trained("BATCH_SIZE = 12"), files=examples.FILES, at="BATCH_SIZE = 12")
    good = Example(examples.trained("BATCH_SIZE = 16"), files=examples.FILES)

    def check(self, plan: Planned) -> Iterator[Finding]:
        """Yields a finding for each binding of such a batch size; datasets that share it share its mistake."""
        data = plan.mesh["data"]
        bad: dict[tuple[BindingKey | None, int], list[str]] = {}
        for role in plan.run.roles:
            batch = role.dataset.batch_size
            if isinstance(batch, int) and batch % data:
                bad.setdefault((role.key(plan.config, "batch_size"), batch), []).append(role.name)
        for (key, batch), names in bad.items():
            near = sorted({max(1, batch // data) * data, math.ceil(batch / data) * data})
            yield self.finding(
                plan.config,
                f"the batch size of {' and '.join(names)} is {batch}, and the mesh's data axis has {data} positions: "
                f"{batch} / {data} leaves {batch % data}",
                key,
                f"set {key.short if key else 'batch_size'} to {' or '.join(map(str, near))}",
            )


class BatchType(PlanRule):
    """A batch size that is no number."""

    code = "GIN08"
    title = "batch size that is not a whole number"
    why = "T5X computes with it after it built the datasets, and dies with `not all arguments converted`."
    bad = Example(examples.trained("BATCH_SIZE = '16'"), files=examples.FILES, at="BATCH_SIZE = '16'")
    good = Example(examples.trained("BATCH_SIZE = 16"), files=examples.FILES)

    def check(self, plan: Planned) -> Iterator[Finding]:
        """Yields a finding for each dataset with one."""
        for role in plan.run.roles:
            batch = role.dataset.batch_size
            if not isinstance(batch, int):
                yield self.finding(
                    plan.config,
                    f"the batch size of {role.name} is {batch!r}, a {type(batch).__name__}",
                    role.key(plan.config, "batch_size"),
                    "give a whole number without quotes",
                )


class Microbatches(PlanRule):
    """A batch that cannot be cut into equal microbatches."""

    code = "MSH11"
    title = "batch size that the number of microbatches does not divide"
    why = "T5X raises while it traces the train step, after it built the datasets and restored the checkpoint."
    bad = Example(
        examples.trained("from t5x import trainer", "trainer.Trainer.num_microbatches = 3", "BATCH_SIZE = 16"),
        files=examples.FILES,
        at="trainer.Trainer.num_microbatches = 3",
    )
    good = Example(
        examples.trained("from t5x import trainer", "trainer.Trainer.num_microbatches = 2", "BATCH_SIZE = 16"),
        files=examples.FILES,
    )

    def check(self, plan: Planned) -> Iterator[Finding]:
        """Yields a finding if so."""
        config = plan.config
        key = config.find("num_microbatches") if config.mode is Mode.TRAIN else None
        if key is None:
            return
        owner = config.owner(key)
        parts = config.value(owner)
        batch = next((r.dataset.batch_size for r in plan.run.roles if r.name == "train"), None)
        if isinstance(parts, int) and parts > 1 and isinstance(batch, int) and batch % parts:
            yield self.finding(
                config,
                f"the batch size {batch} is not divisible by {parts} microbatches",
                owner,
                f"set {key.short} to a divisor of {batch}",
            )
