"""MSH03 and GIN20: partitions that the slice has no mesh for, and a partitioner that is none."""

from __future__ import annotations

from t5x_harness.plan.rule import Example, RaisedPlanRule
from t5x_harness.resolve import examples


class NoMesh(RaisedPlanRule):
    """Partitions or a submesh that do not fit the slice."""

    code = "MSH03"
    title = "number of partitions or submesh that the slice has no mesh for"
    why = "T5X asserts on the TPU that each dimension of the submesh is a factor of the slice's; a CPU ignores both."
    bad = Example(
        examples.trained("partitioning.PjitPartitioner.num_partitions = 3"),
        files=examples.FILES,
        at="partitioning.PjitPartitioner.num_partitions = 3",
    )
    good = Example(examples.trained("partitioning.PjitPartitioner.num_partitions = 4"), files=examples.FILES)


class UncalledPartitioner(RaisedPlanRule):
    """A reference to the partitioner without a call."""

    code = "GIN20"
    title = "partitioner that is not called"
    why = "T5X takes the class for a partitioner, and dies with an attribute error after it built the datasets."
    bad = Example(
        examples.trained("train_script.train.partitioner = @partitioning.PjitPartitioner"),
        files=examples.FILES,
        at="train_script.train.partitioner = @partitioning.PjitPartitioner",
    )
    good = Example(
        examples.trained("train_script.train.partitioner = @partitioning.PjitPartitioner()"), files=examples.FILES
    )
