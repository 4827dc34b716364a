"""A run as the plan sees it: batches and how they are shared, tokens of a step, evaluation."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import seqio

from t5x_harness.findings.stage_report import StageReport
from t5x_harness.findings.text import columns
from t5x_harness.gin.config import BindingKey, GinConfig
from t5x_harness.plan.checkpoint_fit import CheckpointFit
from t5x_harness.plan.checkpoint_source import StartPoint, uses_orbax
from t5x_harness.plan.state_shapes import DataLayout, StateShapes
from t5x_harness.plan.steps import LearningRate, PlannedSteps
from t5x_harness.resolve.datasets import DataRole
from t5x_harness.resolve.resolved import Resolved
from t5x_harness.slices.slice import Slice
from t5x_harness.spec import Mode

PREEMPTIBLE = "Preemptible"
"""The class of ``t5x_harness/preemption.py`` that trainers derive from; copies of that file have it, too."""


@dataclasses.dataclass(frozen=True)
class Planned:
    """The full-size run, in shapes only.

    Attributes:
      run: the resolved run.
      slice: the slice whose mesh is in place.
      partitioner: T5X's partitioner on it.
      layout: the division of a batch among devices and hosts.
      start: the checkpoint that the run starts from.
      steps: the steps that the run trains; None if it does not train.
      learning_rate: the learning rate of training; None if the run does not train.
      shapes: the train state; None if it could not be traced.
      fit: the comparison of the checkpoint with the model; None if there is no checkpoint, or it cannot be read here.
    """

    run: Resolved
    slice: Slice
    partitioner: Any
    layout: DataLayout
    start: StartPoint
    steps: PlannedSteps | None
    learning_rate: LearningRate | None
    shapes: StateShapes | None
    fit: CheckpointFit | None

    @property
    def config(self) -> GinConfig:
        """The parsed config."""
        return self.run.config

    @property
    def uses_orbax(self) -> bool:
        """Whether the run restores and saves with orbax."""
        return uses_orbax(self.config)

    @property
    def save(self) -> Any:
        """T5X's SaveCheckpointConfig; None if the run has none."""
        return getattr(self.config.build("checkpoint_cfg"), "save", None)

    @property
    def is_preemptible(self) -> bool:
        """Whether the trainer ends with a checkpoint on SIGTERM: that of ``t5x_harness.preemption``, or of a copy."""
        bases = getattr(self.config.build("trainer_cls"), "__mro__", ())
        return any(base.__name__ == PREEMPTIBLE for base in bases)

    def restore_key(self, parameter: str) -> BindingKey | None:
        """Returns the binding of a restore setting, or the path's if the setting is not bound."""
        return self.config.owner(self.config.restore_key(parameter)) or self.start.key

    @property
    def mesh(self) -> Mapping[str, int]:
        """Devices by axis: ``data`` and ``model``."""
        return dict(self.partitioner.mesh.shape)

    @property
    def partitioned_by(self) -> str:
        """The binding that splits the slice into a data and a model axis; empty for a mesh of given shapes."""
        for name in ("ici_mesh_shape", "model_parallel_submesh", "num_partitions"):
            if value := self.config.value(self.config.owner(self.config.find(name))):
                return "" if name == "ici_mesh_shape" else f"{name} = {value!r}"
        return ""

    @property
    def microbatches_key(self) -> BindingKey | None:
        """The binding that holds the number of microbatches, if there is one."""
        config = self.config
        if config.mode is not Mode.TRAIN:
            return None
        return config.owner(config.find("num_microbatches", scope=config.scope_of("trainer_cls") or ""))

    @property
    def microbatches(self) -> int:
        """The number of parts that a train step processes one after the other; 1 if the batch is not divided."""
        parts = self.config.value(self.microbatches_key)
        return parts if isinstance(parts, int) and parts > 1 else 1


def read_tasks(plan: Planned, role: DataRole) -> Sequence[seqio.Task]:
    """Returns the tasks that a dataset reads; SeqIO skips tasks of a mixture that lack the split."""
    tasks = plan.run.tasks[role.parameter]
    return [task for task in tasks if role.dataset.split in task.splits] if len(tasks) > 1 else tasks


def describe_batches(plan: Planned, report: StageReport) -> None:
    """Adds how batches are shared, and how much a train step reads."""
    roles = [(role, size) for role in plan.run.roles if (size := role.batch_size) and not size % plan.layout.positions]
    if roles:
        report.fact("batches", _table(plan, roles))
    for role, size in roles:
        report.measure("batch_size", size, "examples", of=role.name)
        report.measure("batch_on_each_data_position", size // plan.layout.positions, "examples", of=role.name)
        if role.parameter == "train_dataset_cfg":
            _describe_reading(plan, role, size, report)


def describe_evaluation(plan: Planned, report: StageReport) -> None:
    """Adds the amount and frequency of evaluation."""
    for role in plan.run.roles:
        size = role.batch_size
        if size and role.parameter != "train_dataset_cfg":
            report.fact(f"{role.name} reads", _evaluated(plan, role, size) + _how_often(plan))


def _table(plan: Planned, roles: list[tuple[DataRole, int]]) -> str:
    parts = plan.microbatches
    head = ["dataset", "examples", "on each data position", "read by each host"]
    head += [f"in each of {parts} microbatches"] * (parts > 1)
    rows = []
    for role, size in roles:
        row: list[Any] = [role.name, size, size // plan.layout.positions, size // plan.layout.shards]
        if parts > 1:
            row.append(size // parts if role.parameter == "train_dataset_cfg" and not size % parts else "-")
        rows.append(row)
    return columns(rows, head)


def _describe_reading(plan: Planned, role: DataRole, size: int, report: StageReport) -> None:
    tasks = read_tasks(plan, role)
    lengths = plan.run.lengths_of(role, tasks)
    shown = " + ".join(f"{length} {name}" for name, length in lengths.items())
    report.fact("tokens in a train step", f"{size * sum(lengths.values()):,}, padding included: {size} rows of {shown}")
    report.measure("tokens_in_a_train_step", size * sum(lengths.values()), "tokens")
    numbers = [plan.run.source_size(role, task) for task in tasks]
    steps = plan.steps.to_train if plan.steps else None
    where = f"{role.source} {role.dataset.split}"
    if not numbers or not all(numbers):
        report.not_checked.append(f"the epochs over {where}: its sources do not say how many examples they hold")
    elif steps:
        examples = sum(n for n in numbers if n)
        epochs = steps * size / examples
        report.measure("examples_in_sources", examples, "examples", of=role.name)
        report.measure("epochs", epochs, of=role.name)
        shown = f"{epochs:.3g}" if epochs < 1000 else f"{epochs:.0f}"
        report.fact(
            f"epochs over {where}",
            f"{shown} if a row holds one example: {steps} steps of {size} rows, {examples} examples in the sources",
        )


def _evaluated(plan: Planned, role: DataRole, size: int) -> str:
    """Describes the examples that one evaluation or inference reads."""
    config, tasks = plan.config, read_tasks(plan, role)
    of = f"{tasks[0].name} {role.dataset.split}" if len(tasks) == 1 else f"{len(tasks)} tasks of {role.source}"
    each = "" if len(tasks) == 1 else "each of "
    if role.parameter == "train_eval_dataset_cfg":
        return f"{config.value(config.owner_of('eval_steps'))} batches of {each}{of}"
    key = config.find("num_examples", scope=config.scope_of("inference_evaluator_cls") or "")
    limit = config.value(config.owner(key)) if config.mode is not Mode.INFER else None
    limit = limit if isinstance(limit, int) and limit > 0 else None  # examples of each task; None for all
    numbers = [plan.run.source_size(role, task) for task in tasks]
    if all(numbers):
        read = [min(n, limit or n) for n in numbers if n]
        batches = sum(math.ceil(n / size) for n in read)
        return f"{sum(read)} examples of {of} in {batches} batch{'' if batches == 1 else 'es'}"
    return f"at most {limit} examples of {each}{of}" if limit else f"all examples of {of}"


def _how_often(plan: Planned) -> str:
    """Describes when a training run evaluates; empty for other runs, or if that is not known."""
    config = plan.config
    period = config.value(config.owner_of("eval_period"))
    if plan.steps is None or not isinstance(period, int) or period <= 0:
        return ""
    first, times = bool(config.value(config.owner_of("run_eval_before_training"))), ""
    if plan.steps.to_train:
        number = math.ceil(plan.steps.to_train / period) + first
        times = f": {number} time{'' if number == 1 else 's'}"
    return f", {'before training, ' if first else ''}every {period} steps and at the end{times}"
