"""MSH03 to MSH05 and GIN20: partitions that the slice has no mesh for, or that are not read; what is not called."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Mistake
from t5x_harness.plan.rule import PlanRule
from t5x_harness.spec import Finding, Severity, Stage

if TYPE_CHECKING:
    from t5x_harness.plan.planned import Planned


class NoMesh(Mistake):
    """Partitions or a submesh that do not fit the slice."""

    stage = Stage.PLAN
    code = "MSH03"
    title = "number of partitions or submesh that the slice has no mesh for"
    why = "T5X asserts on the TPU that each dimension of the submesh is a factor of the slice's; a CPU ignores both."
    bad = training(
        "partitioning.PjitPartitioner.num_partitions = 3", at="partitioning.PjitPartitioner.num_partitions = 3"
    )
    good = training("partitioning.PjitPartitioner.num_partitions = 4")


class HostsCut(Mistake):
    """A submesh that divides the slice, but not along its hosts."""

    stage = Stage.PLAN
    code = "MSH04"
    title = "submesh that does not fill whole hosts, nor hosts it"
    why = (
        "T5X tiles a pod by hosts, and asserts in each dimension that the submesh is a factor or a multiple of one "
        "host's devices. It does so on pods only, once they are allocated."
    )
    bad = training(
        "partitioning.PjitPartitioner.model_parallel_submesh = (3, 2, 1, 1)",
        slice="v4:6x2x2",
        at="partitioning.PjitPartitioner.model_parallel_submesh",
    )
    good = training(
        "partitioning.PjitPartitioner.model_parallel_submesh = (2, 2, 1, 1)", "BATCH_SIZE = 120", slice="v4:6x2x2"
    )


class UnreadPartitions(PlanRule):
    """A number of partitions that a submesh overrides."""

    code = "MSH05"
    severity = Severity.WARNING
    title = "num_partitions that a submesh of another size overrides"
    why = "T5X reads num_partitions only where model_parallel_submesh is None; with both it logs an error and goes on."
    bad = training(
        "partitioning.PjitPartitioner.num_partitions = 4",
        "partitioning.PjitPartitioner.model_parallel_submesh = (1, 1, 1, 2)",
        at="partitioning.PjitPartitioner.num_partitions",
    )
    good = training("partitioning.PjitPartitioner.model_parallel_submesh = (1, 1, 1, 2)")

    def check(self, plan: Planned) -> Iterator[Finding]:
        """Yields a finding if so; 1, the default of T5X's run configs, is taken for left alone."""
        config = plan.config
        found = [config.find(name) for name in ("num_partitions", "model_parallel_submesh")]
        keys = [config.owner(key) for key in found if key]
        if len(keys) < 2:
            return
        number, submesh = config.value(keys[0]), config.value(keys[1])
        if isinstance(number, int) and number > 1 and submesh and math.prod(submesh) != number:
            yield self.finding(
                f"{keys[0].short} is {number} and not read: model_parallel_submesh is {tuple(submesh)} "
                f"({config.origin(keys[1])}), so the model is split over {math.prod(submesh)} devices",
                keys[0],
                f"remove one of them, or set num_partitions to {math.prod(submesh)}",
            )


class Uncalled(PlanRule):
    """A reference to the partitioner, or to what makes the learning rate schedule, without a call."""

    code = "GIN20"
    title = "partitioner or learning rate schedule that is not called"
    why = (
        "T5X takes the class for a partitioner, and what makes a schedule for one: it dies with an attribute error "
        "after it built the datasets, or while it traces the train step."
    )
    bad = training(
        "train_script.train.partitioner = @partitioning.PjitPartitioner",
        at="train_script.train.partitioner = @partitioning.PjitPartitioner",
    )
    good = training("train_script.train.partitioner = @partitioning.PjitPartitioner()")

    def check(self, plan: Planned) -> Iterator[Finding]:
        """Yields a finding for such a schedule; without a partitioner no run comes this far."""
        rate = plan.learning_rate
        if rate is not None and rate.is_uncalled and rate.schedule is not None:
            key = rate.schedule.key
            value = plan.config.value(key)
            yield self.finding(
                f"{key.short} is {value!r}, which is not a schedule but what makes one", key, f"write {value!r}()"
            )
