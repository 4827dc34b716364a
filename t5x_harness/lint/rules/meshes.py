"""MSH02, MSH03 and MSH14: batch sizes, submeshes and sizes of the model that a slice cannot lay out well."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from t5x_harness.findings import examples
from t5x_harness.findings.examples import training
from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.lint.rule import ConfiguredObject, Context, ParameterValue, finds, run_function
from t5x_harness.lint.rules.numbers import NETWORK_CONFIGS, literals
from t5x_harness.spec import Severity

_PARTITIONERS = ("t5x.partitioning.PjitPartitioner", "t5x.partitioning.ModelBasedPjitPartitioner")


def _partitioner(context: Context) -> ConfiguredObject:
    """Returns T5X's own partitioner, as the run builds it."""
    return run_function(context).built("partitioner", *_PARTITIONERS)


MSH03 = Mistake(
    "MSH03",
    "number of partitions or submesh that the slice has no mesh for",
    why=(
        "T5X lays the submesh over the slice's x, y, z and the cores of a chip, and asserts that each dimension "
        "divides the slice's, once the TPU is there; a CPU ignores partitions and submesh."
    ),
    later="It also knows which partitions and submeshes of four numbers the slice has no mesh for.",
    bad=training(
        "partitioning.PjitPartitioner.model_parallel_submesh = (1, 2, 1)",
        at="partitioning.PjitPartitioner.model_parallel_submesh",
    ),
    good=training("partitioning.PjitPartitioner.model_parallel_submesh = (1, 1, 1, 2)"),
)


@finds(MSH03)
def submesh_of_other_length(context: Context) -> Iterator[Found]:
    """Finds a submesh that does not have one number for each dimension of a slice."""
    submesh = _partitioner(context).parameter("model_parallel_submesh", (tuple, list))
    count = len(submesh.value) if submesh is not None else 0
    if submesh is None or count in (0, 4) or not all(isinstance(size, int) for size in submesh.value):
        return
    yield Found(
        f"{submesh.at} = {tuple(submesh.value)} has {count} number{'s' * (count != 1)}, and a slice has four "
        "dimensions: x, y, z and the cores of a chip",
        submesh.at,
        "give four, such as (2, 2, 1, 2) for eight devices of a v3",
    )


MSH02 = Mistake(
    "MSH02",
    "batch size that the mesh's data axis does not divide",
    why=(
        "T5X refuses it once the TPU is allocated. On a CPU without the harness it passes, because T5X's CPU mesh"
        " has one data position, whatever num_partitions says. `t5x-harness lint` looks at it if `--slice` or the"
        " project names the slice; the stage plan always does."
    ),
    bad=training("BATCH_SIZE = 12", at="BATCH_SIZE = 12"),
    good=training("BATCH_SIZE = 16"),
)


@finds(MSH02)
def batch_on_mesh(context: Context) -> Iterator[Found]:
    """Finds each batch size that the data axis does not divide, if both it and the partitions are literals."""
    partitioner = _partitioner(context)
    if not partitioner or context.slice is None:
        return
    partitions = partitioner.value("num_partitions")
    devices = context.slice.num_devices
    if partitioner.value("model_parallel_submesh") or not isinstance(partitions, int) or partitions < 1:
        return
    if devices % partitions:
        return  # no mesh at all, which plan judges
    data = devices // partitions
    for batch, names in _batches(run_function(context)):
        if batch.value % data:
            message, near = uneven_batch(names, batch.value, data)
            yield Found(message, batch.at, f"set {batch.at} to {near}")


def uneven_batch(names: Sequence[str], batch: int, data: int) -> tuple[str, str]:
    """Returns what is wrong with a batch that ``data`` positions cannot share, and the sizes next to it that fit."""
    near = sorted({max(1, batch // data) * data, math.ceil(batch / data) * data})
    message = (
        f"the batch size of {' and '.join(names)} is {batch}, and the mesh's data axis has {data} positions: "
        f"{batch} / {data} leaves {batch % data}"
    )
    return message, " or ".join(map(str, near))


def _batches(run: ConfiguredObject) -> Iterator[tuple[ParameterValue, list[str]]]:
    """Yields the batch sizes that are whole numbers, and the datasets that read each."""
    found: dict[tuple[str, str, str], tuple[ParameterValue, list[str]]] = {}
    for parameter in ("train_dataset_cfg", "train_eval_dataset_cfg", "infer_eval_dataset_cfg", "dataset_cfg"):
        batch = run.built(parameter, "t5x.utils.DatasetConfig").parameter("batch_size", int)
        if batch is not None and batch.value > 0:
            name = parameter.removesuffix("_dataset_cfg").removesuffix("_cfg")
            found.setdefault(batch.at.key, (batch, []))[1].append(name)
    yield from found.values()


_SIZES = ("emb_dim", "head_dim", "mlp_dim", "vocab_size")
_ROWS, _COLUMNS = 8, 128
_SMALL = examples.head("pretrain", "from t5x.examples.t5 import network", model="small")


MSH14 = Mistake(
    "MSH14",
    "model size that is not a multiple of 8",
    severity=Severity.NOTE,
    why=(
        f"The TPU keeps arrays in tiles of {_ROWS} x {_COLUMNS}. A size that is not a multiple of {_ROWS} is "
        "padded whichever way it lies: memory and time for numbers that nothing uses."
    ),
    bad=Example(_SMALL + "network.T5Config.head_dim = 60\n", at="network.T5Config.head_dim"),
    good=Example(_SMALL + "network.T5Config.head_dim = 64\n"),
)


@finds(MSH14)
def padded_sizes(context: Context) -> Iterator[Found]:
    """Finds each size of the model that fills no whole tile and is not T5X's own."""
    for binding, given in literals(context, dict.fromkeys(NETWORK_CONFIGS, _SIZES)):
        size = given.value
        if not isinstance(size, int) or size <= 0 or size % _ROWS == 0 or context.in_t5x(given.location):
            continue
        unit = _COLUMNS if binding.param == "vocab_size" else _ROWS
        yield Found(
            f"{given} = {size} is not a multiple of {_ROWS}, and the TPU pads it to {-(-size // _ROWS) * _ROWS} or "
            "more",
            given,
            f"the next multiple of {unit} is {-(-size // unit) * unit}",
        )
