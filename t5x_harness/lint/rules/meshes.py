"""MSH02 and MSH03: batch sizes and submeshes that no slice, or not the given one, can lay out."""

from __future__ import annotations

import math
from collections.abc import Iterator

from t5x_harness.findings import examples
from t5x_harness.gin.values import Reference
from t5x_harness.lint.rule import Context, Example, Rule
from t5x_harness.lint.settings import Given, Part, run_part
from t5x_harness.spec import Finding

_HEAD = examples.head("pretrain", "from t5x import partitioning")
_PARTITIONERS = ("t5x.partitioning.PjitPartitioner", "t5x.partitioning.ModelBasedPjitPartitioner")
_DATASETS = ("train_dataset_cfg", "train_eval_dataset_cfg", "infer_eval_dataset_cfg", "dataset_cfg")


def _partitioner(context: Context) -> Part | None:
    """Returns T5X's own partitioner, as the run builds it."""
    run = run_part(context)
    reference = run.value("partitioner") if run is not None else None
    if run is None or not isinstance(reference, Reference) or reference.target not in _PARTITIONERS:
        return None
    return run.part("partitioner", reference.target)


class SubmeshOfOtherLength(Rule):
    """A submesh that does not have one number for each dimension of a slice."""

    code = "MSH03"
    title = "submesh that is not four numbers"
    why = (
        "T5X lays the submesh over the slice's x, y, z and the cores of a chip, and asserts that each dimension "
        "divides the slice's, once the TPU is there."
    )
    bad = Example(
        _HEAD + "partitioning.PjitPartitioner.model_parallel_submesh = (1, 2, 1)\n",
        at="partitioning.PjitPartitioner.model_parallel_submesh",
    )
    good = Example(_HEAD + "partitioning.PjitPartitioner.model_parallel_submesh = (1, 2, 1, 1)\n")

    def check(self, context: Context) -> Iterator[Finding]:
        partitioner = _partitioner(context)
        submesh = partitioner.given("model_parallel_submesh") if partitioner is not None else None
        if submesh is None or not isinstance(submesh.value, (tuple, list)) or not submesh.value:
            return
        if len(submesh.value) == 4 or not all(isinstance(size, int) for size in submesh.value):
            return
        count = len(submesh.value)
        yield self.finding(
            f"{submesh.at} = {tuple(submesh.value)} has {count} number{'s' * (count != 1)}, and a slice has four "
            "dimensions: x, y, z and the cores of a chip",
            submesh.at,
            "give four, such as (2, 2, 1, 2) for eight devices of a v3",
        )


class BatchOnMesh(Rule):
    """A batch that the data axis of the given slice does not divide."""

    code = "MSH02"
    title = "batch size that the mesh's data axis does not divide"
    why = (
        "T5X refuses it once the TPU is allocated. `t5x-harness lint` looks at it where `--slice` or the project names "
        "the slice; the stage plan always does."
    )
    bad = Example(_HEAD + "BATCH_SIZE = 66\n", at="BATCH_SIZE")
    good = Example(_HEAD + "BATCH_SIZE = 64\n")

    def check(self, context: Context) -> Iterator[Finding]:
        """Yields a finding for each batch size that is a literal, where the number of partitions is, too."""
        run, partitioner = run_part(context), _partitioner(context)
        if run is None or partitioner is None or context.slice is None:
            return
        partitions = partitioner.value("num_partitions")
        devices = context.slice.num_devices
        if partitioner.value("model_parallel_submesh") or not isinstance(partitions, int) or partitions < 1:
            return
        if devices % partitions:
            return  # no mesh at all, which plan judges
        data = devices // partitions
        for batch, names in _batches(run):
            if batch.value % data:
                near = sorted({max(1, batch.value // data) * data, math.ceil(batch.value / data) * data})
                yield self.finding(
                    f"the batch size of {' and '.join(names)} is {batch.value}, and the mesh's data axis has {data} "
                    f"positions: {batch.value} / {data} leaves {batch.value % data}",
                    batch.at,
                    f"set {batch.at} to {' or '.join(map(str, near))}",
                )


def _batches(run: Part) -> Iterator[tuple[Given, list[str]]]:
    """Yields the batch sizes that are whole numbers, and the datasets that read each."""
    found: dict[tuple[str, str, str], tuple[Given, list[str]]] = {}
    for parameter in _DATASETS:
        dataset = run.part(parameter, "t5x.utils.DatasetConfig")
        batch = dataset.given("batch_size") if dataset is not None else None
        if batch is not None and isinstance(batch.value, int) and batch.value > 0:
            name = parameter.removesuffix("_dataset_cfg").removesuffix("_cfg")
            found.setdefault(batch.at.key, (batch, []))[1].append(name)
    yield from found.values()
