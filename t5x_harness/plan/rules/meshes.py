"""MSH03 to MSH05 and GIN20: partitions that the slice has no mesh for, or that are not read; what is not called."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Found, Mistake
from t5x_harness.lint.rules.meshes import MSH03
from t5x_harness.lint.rules.uncalled_reference import GIN20
from t5x_harness.plan.rule import finds
from t5x_harness.spec import Severity

if TYPE_CHECKING:
    from t5x_harness.plan.planned import Planned


MSH04 = Mistake(
    "MSH04",
    "submesh that does not fill whole hosts, nor hosts it",
    why=(
        "T5X tiles a pod by hosts, and asserts in each dimension that the submesh is a factor or a multiple of one "
        "host's devices. It does so on pods only, once they are allocated."
    ),
    bad=training(
        "partitioning.PjitPartitioner.model_parallel_submesh = (3, 2, 1, 1)",
        slice="v4:6x2x2",
        at="partitioning.PjitPartitioner.model_parallel_submesh",
    ),
    good=training(
        "partitioning.PjitPartitioner.model_parallel_submesh = (2, 2, 1, 1)", "BATCH_SIZE = 120", slice="v4:6x2x2"
    ),
)


MSH05 = Mistake(
    "MSH05",
    "num_partitions that a submesh of another size overrides",
    severity=Severity.WARNING,
    why="T5X reads num_partitions only where model_parallel_submesh is None; with both it logs an error and goes on.",
    bad=training(
        "partitioning.PjitPartitioner.num_partitions = 4",
        "partitioning.PjitPartitioner.model_parallel_submesh = (1, 1, 1, 2)",
        at="partitioning.PjitPartitioner.num_partitions",
    ),
    good=training("partitioning.PjitPartitioner.model_parallel_submesh = (1, 1, 1, 2)"),
)


@finds(MSH05)
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


@finds(GIN20)
def uncalled(plan: Planned) -> Iterator[Found]:
    """Finds a schedule that is not called; without a partitioner no run comes this far."""
    rate = plan.learning_rate
    if rate is not None and rate.is_uncalled and rate.schedule is not None:
        key = rate.schedule.key
        value = plan.config.value(key)
        yield Found(f"{key.short} is {value!r}, which is not a schedule but what makes one", key, f"write {value!r}()")


FOUND_BY_STAGE = {"MSH03": MSH03, "HostsCut": MSH04}
