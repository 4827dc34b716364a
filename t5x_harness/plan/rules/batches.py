"""MSH02, MSH11 and GIN08: batch sizes that the mesh or the microbatches cannot share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.lint.rules.meshes import MSH02, uneven_batch
from t5x_harness.lint.rules.quoted_values import GIN08
from t5x_harness.plan.rule import finds
from t5x_harness.spec import Severity

if TYPE_CHECKING:
    from t5x_harness.gin.config import BindingKey
    from t5x_harness.plan.planned import Planned


@finds(MSH02)
def batch_on_mesh(plan: Planned) -> Iterator[Found]:
    """Finds each batch size that the data axis does not divide; datasets that share its binding share the finding."""
    data = plan.layout.positions
    bad: dict[tuple[BindingKey | None, int], list[str]] = {}
    for role in plan.run.roles:
        batch = role.dataset.batch_size
        if isinstance(batch, int) and batch > 0 and batch % data:
            bad.setdefault((role.key(plan.config, "batch_size"), batch), []).append(role.name)
    for (key, batch), names in bad.items():
        message, near = uneven_batch(names, batch, data)
        yield Found(message, key, f"set {key.short if key else 'batch_size'} to {near}")


@finds(GIN08)
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


MSH11 = Mistake(
    "MSH11",
    "batch size that the number of microbatches does not divide",
    why=(
        "T5X raises while it traces the train step, after it built the datasets and restored the checkpoint. "
        "Microbatches that the data axis does not divide train, but some devices compute more than others: a warning."
    ),
    bad=training(
        "from t5x import trainer",
        "trainer.Trainer.num_microbatches = 3",
        "BATCH_SIZE = 16",
        at="trainer.Trainer.num_microbatches = 3",
    ),
    good=training("from t5x import trainer", "trainer.Trainer.num_microbatches = 2", "BATCH_SIZE = 16"),
)


@finds(MSH11)
def microbatches(plan: Planned) -> Iterator[Found]:
    """Finds a batch that cannot be cut into equal microbatches, or microbatches that the mesh cannot share evenly."""
    from t5x_harness.plan.batches import batch_size, microbatches_key, num_microbatches

    parts, positions = num_microbatches(plan), plan.layout.positions
    batch = next((batch_size(r) for r in plan.run.roles if r.parameter == "train_dataset_cfg"), None)
    if batch is None or parts == 1:
        return
    key = microbatches_key(plan)
    name = key.short if key else "num_microbatches"
    if batch % parts:
        yield Found(
            f"the batch size {batch} is not divisible by {parts} microbatches",
            key,
            f"set {name} to a divisor of {batch}",
        )
    elif (batch // parts) % positions and not batch % positions:
        fitting = batch // positions
        yield Found(
            f"{parts} microbatches of the batch size {batch} have {batch // parts} examples each, and the mesh's "
            f"data axis has {positions} positions: T5X shares them unevenly",
            key,
            f"set {name} to {'1' if fitting == 1 else f'a divisor of {fitting}'}, or enlarge the batch",
            severity=Severity.WARNING,
        )
