"""GIN23, MSH02, MSH03 and MSH14: numbers that T5X, a slice, or the comment next to them contradicts."""

import math
import re
import tokenize
from collections.abc import Collection, Iterator, Mapping, Sequence

from t5x_harness.findings.rule import Example, Found, Rule, run_head, training
from t5x_harness.gin.program import Binding, MacroBinding
from t5x_harness.gin.values import format_value
from t5x_harness.lint.edits import statement_at
from t5x_harness.lint.rule import (
    ConfiguredObject,
    Context,
    ParameterValue,
    run_function,
    where,
)
from t5x_harness.spec import Severity

NETWORK_CONFIGS = (
    "t5x.examples.t5.network.T5Config",
    "t5x.examples.scalable_t5.network.T5Config",
    "t5x.examples.decoder_only.network.TransformerConfig",
)


def literals(
    context: Context, parameters: Mapping[str, Collection[str]]
) -> Iterator[tuple[Binding, Binding | MacroBinding]]:
    """Yields the statements that give these parameters values, each once, with the first binding that reads each."""
    seen: set[tuple[str, str, str]] = set()
    for binding, given in context.program.given_values:
        if binding.param in parameters.get(binding.target, ()) and given.key not in seen:
            seen.add(given.key)
            yield binding, given


def read_as(binding: Binding, given: Binding | MacroBinding) -> str:
    """Names the parameter that reads a macro's value; returns an empty text if the parameter itself is bound."""
    return f" (read by {binding} in {where(binding.location)})" if given is not binding else ""


_NUMBER = r"\d[\d_]*"
_STEPS = rf"{_NUMBER}(?: (?:steps )?(?:of |for )?(?:pre-?train\w*|fine-?tun\w*)(?: steps)?)?"
_SUM = re.compile(rf"{_STEPS}(?: (?:\+|and) {_STEPS})+")
_PRODUCTS = re.compile(rf"{_NUMBER}(?:\s*[*+]\s*{_NUMBER})+")

# The comment on None in T5X's own files; it often stays when the value is changed.
_OF_NONE: Mapping[str, str] = {
    "keep": r"keep all( checkpoints)?",
    "seed": r"use a new seed each run(/restart)?",
    "num_examples": r"use all examples( in the (infer_eval )?dataset)?",
}
_HEAD = run_head("finetune", "from t5x import utils")


@Rule(
    "GIN23",
    "comment that contradicts its value",
    severity=Severity.WARNING,
    why=(
        "Gin reads no comments: with `TRAIN_STEPS = 2_680_000  # 2_650_000 + 50_000` the run ends after 30000 steps. "
        "Only sums and products of plain numbers are compared, and what T5X's own files say beside None."
    ),
    bad=Example(_HEAD + "TRAIN_STEPS = 2_680_000  # 2_650_000 + 50_000\n", at="TRAIN_STEPS"),
    good=Example(_HEAD + "TRAIN_STEPS = 2_700_000  # 2_650_000 + 50_000\n"),
)
def stale_comment(context: Context) -> Iterator[Found]:
    """Finds each of the user's comments whose arithmetic does not match the value, or that are about another value."""
    for statement in context.program.final.values():
        if not isinstance(statement.value, int) or isinstance(statement.value, bool):
            continue
        text = statement_at(context.program, statement.location) if _may_have_comment(context, statement) else None
        comments = [token.string for token in text.tokens if token.type == tokenize.COMMENT] if text is not None else []
        if len(comments) != 1:
            continue
        comment = comments[0].lstrip("# ").rstrip(" .")
        claimed = _result(comment, of_steps="steps" in str(statement).lower())
        if claimed is not None and claimed != statement.value:
            yield Found(
                f"{statement} = {statement.value}, and the comment beside it comes to {claimed} ({comment})",
                statement,
                f"write {statement} = {claimed:_}, or correct the comment",
            )
        elif _says_none(statement, comment):
            yield Found(
                f"{statement} = {format_value(statement.value)}, and the comment beside it says {comment!r}",
                statement,
                f"write {statement} = None, or remove the comment",
            )


def _may_have_comment(context: Context, statement: Binding | MacroBinding) -> bool:
    """Returns whether the line of a number has a comment, or goes on in the next line."""
    at = statement.location
    line = "".join(context.program.own_lines.get(at.file, ())[max(at.line - 1, 0) : at.line])
    return "#" in line or "(" in line or "\\" in line


def _result(comment: str, *, of_steps: bool) -> int | None:
    """Returns the result of a comment's arithmetic; None if the comment has anything more or less."""
    if _PRODUCTS.fullmatch(comment):
        return sum(math.prod(map(int, product.split("*"))) for product in comment.split("+"))
    if of_steps and _SUM.fullmatch(comment):
        return sum(map(int, re.findall(_NUMBER, comment)))
    return None


def _says_none(statement: Binding | MacroBinding, comment: str) -> bool:
    name = str(statement).rpartition(".")[2].lower()
    return any(
        (name == key or name.endswith(f"_{key}")) and re.fullmatch(words, comment.lower())
        for key, words in _OF_NONE.items()
    )


_PARTITIONERS = ("t5x.partitioning.PjitPartitioner", "t5x.partitioning.ModelBasedPjitPartitioner")


def _partitioner(context: Context) -> ConfiguredObject:
    """Returns T5X's own partitioner, as the run builds it."""
    return run_function(context).built("partitioner", *_PARTITIONERS)


MSH03 = Rule(
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


@MSH03
def submesh_of_other_length(context: Context) -> Iterator[Found]:
    """Finds a submesh that does not have one number for each dimension of a slice; T5X trains with more of them."""
    submesh = _partitioner(context).parameter("model_parallel_submesh", (tuple, list))
    count = len(submesh.value) if submesh is not None else 0
    if submesh is None or count in (0, 4) or not all(isinstance(size, int) for size in submesh.value):
        return
    more = "; the rest only multiplies the size of the mesh's model axis" if count > 4 else ""
    yield Found(
        f"{submesh.at} = {tuple(submesh.value)} has {count} number{'s' * (count != 1)}, and a slice has four "
        f"dimensions: x, y, z and the cores of a chip{more}",
        submesh.at,
        "give four, such as (2, 2, 1, 2) for eight devices of a v3",
        severity=Severity.WARNING if more else None,
    )


MSH02 = Rule(
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


@MSH02
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
        return  # no mesh at all, which the plan stage judges
    data = devices // partitions
    for batch, names in _batches(run_function(context)):
        if batch.value % data:
            message, near = uneven_batch(names, batch.value, data, f"num_partitions = {partitions}")
            yield Found(message, batch.at, f"set {batch.at} to {near}")


def uneven_batch(names: Sequence[str], batch: int, data: int, by: str) -> tuple[str, str]:
    """Returns what is wrong with a batch that the mesh's data axis cannot divide, and the nearest sizes that fit.

    Args:
      names: the datasets with this batch size.
      batch: the batch size.
      data: the positions of the data axis.
      by: the binding that makes them so many; empty if no single one does.
    """
    near = sorted({max(1, batch // data) * data, math.ceil(batch / data) * data})
    message = (
        f"the batch size of {' and '.join(names)} is {batch}, and the mesh's data axis has {data} positions"
        f"{f' with {by}' if by else ''}: {batch} / {data} leaves {batch % data}"
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
_SMALL = run_head("pretrain", "from t5x.examples.t5 import network", model="small")


@Rule(
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
def padded_sizes(context: Context) -> Iterator[Found]:
    """Finds each size of the model that does not fill whole tiles, except T5X's own sizes."""
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
