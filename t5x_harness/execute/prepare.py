"""Turns the resolved full-size run into the run that is executed: shrunk, with a checkpoint to start from."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import seqio

from t5x_harness.execute import sizes
from t5x_harness.execute.shrink import Shrinker
from t5x_harness.execute.starting_checkpoint import StartMaker
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.gin.config import GinConfig
from t5x_harness.plan.checkpoint_source import StartPoint, find_initial
from t5x_harness.plan.planned import Planned
from t5x_harness.plan.state_shapes import StateShapes, model_inputs, state_shapes
from t5x_harness.resolve.datasets import DataRole, registered_name, roles_of, vocabulary_ids
from t5x_harness.resolve.resolved import Resolved
from t5x_harness.slices.mesh import mesh_text
from t5x_harness.slices.pod import Pod
from t5x_harness.spec import Change, Changed, Mode, Reason, RunSpec
from t5x_harness.upstream.t5x import install_mesh

_PRETRAINED_STEP = 1_000_000
"""The step of T5's public checkpoints, and of a stand-in whose path names no step."""


@dataclasses.dataclass(frozen=True)
class RunData:
    """The datasets of a run, and their tasks.

    Attributes:
      roles: the datasets of the config.
      of_roles: the tasks of each, by the parameter of the entry point that it is bound to.
    """

    roles: Sequence[DataRole]
    of_roles: Mapping[str, Sequence[seqio.Task]]

    def role(self, parameter: str) -> DataRole:
        """Returns the dataset that is bound to a parameter of the entry point."""
        return next(r for r in self.roles if r.parameter == parameter)

    def tasks(self, role: DataRole) -> Sequence[seqio.Task]:
        """Returns the tasks of a dataset that have its split."""
        split = role.dataset.split.split("[")[0]
        return [t for t in self.of_roles[role.parameter] if split in t.splits or "+" in role.dataset.split]

    @property
    def all_tasks(self) -> list[seqio.Task]:
        """Every task of the run."""
        return [task for tasks in self.of_roles.values() for task in tasks]

    def has_metrics(self, role: DataRole) -> bool:
        """Returns whether any task of a dataset is evaluated by its predictions."""
        return registered_name(role) is not None and any(task.metric_fns for task in self.tasks(role))

    @property
    def evaluated(self) -> DataRole:
        """The data that a train config's checkpoint is evaluated on: infer_eval, else train_eval, else train."""
        by_name = {r.name: r for r in self.roles if self.tasks(r)}
        role = by_name.get("infer_eval")
        if role is None or not self.has_metrics(role):
            role = by_name.get("train_eval") or by_name["train"]
        return role if not self.has_metrics(role) else self._for_predictions(role)

    @property
    def inferred(self) -> DataRole:
        """The data that a train config's checkpoint predicts: infer_eval, else train_eval, else train; never packed."""
        by_name = {r.name: r for r in self.roles if self.tasks(r)}
        return self._for_predictions(by_name.get("infer_eval") or by_name.get("train_eval") or by_name["train"])

    def _for_predictions(self, role: DataRole) -> DataRole:
        lengths = role.dataset.task_feature_lengths or self.role("train_dataset_cfg").dataset.task_feature_lengths
        name = registered_name(role)  # SeqIO's evaluator accepts only registered names
        dataset = dataclasses.replace(
            role.dataset,
            task_feature_lengths=lengths,
            pack=False,
            shuffle=False,
            mixture_or_task_name=name or role.dataset.mixture_or_task_name,
        )
        return dataclasses.replace(role, dataset=dataset)


@dataclasses.dataclass(frozen=True)
class PreparedRun:
    """The run as it is executed.

    Attributes:
      config: the parsed config, shrunk.
      model: the model, built from the config.
      partitioner: the partitioner, built from the config.
      data: the datasets of the config.
      shapes: the shapes of the shrunk train state.
      first_step: the step that training starts from.
      steps: the number of steps to train.
      examples: the number of examples of each task that evaluation and inference read; None for all.
      changes: what differs from the config.
    """

    config: GinConfig
    model: Any
    partitioner: Any
    data: RunData
    shapes: StateShapes
    first_step: int
    steps: int
    examples: int | None
    changes: Sequence[Change]


def prepare(
    full: Resolved,
    plan: Planned,
    spec: RunSpec,
    workspace: Path,
    report: StageReport,
    pod: Pod | None = None,
    *,
    in_bucket: bool = True,
    steps: int | None = None,
) -> PreparedRun:
    """Shrinks a config and makes its starting checkpoint.

    Args:
      full: the resolved run at full size; its config is changed.
      plan: its plan.
      spec: the run to execute.
      workspace: the run's folder, where stand-ins are written.
      report: the report of the first stage that executes, which receives the changes.
      pod: the place of this process among the hosts of a pod, which all prepare the run; None if it is alone.
      in_bucket: whether a stand-in for a checkpoint is in this run's buckets at the path that the config names; else
        it is in the run's folder, and the path is rebound.
      steps: the train steps of a shrunk run; None for a few.

    Raises:
      Exception: the shrunk model cannot be built.
    """
    config = full.config
    if not (spec.settings.full_size or spec.settings.full_mesh or pod):
        _take_few_devices(plan, report)
    partitioner = config.build("partitioner")
    axes = sizes.Axes(plan.mesh["data"], plan.mesh["model"], partitioner.mesh.shape["data"])
    start = find_initial(config)  # the run here has its own MODEL_DIR, without earlier checkpoints
    first = first_step_of(config, start)
    shrinker = Shrinker(config, axes, first, vocabulary_ids(full.model), steps)
    if not spec.settings.full_size:
        shrinker.shrink()
        shrinker.fix_seed()
        report.changes += shrinker.changes
    model = config.build("model") if shrinker.changes else full.model
    roles = roles_of(config)
    role = next(r for r in roles if isinstance(r.dataset.batch_size, int))
    lengths = full.lengths_of(role, full.tasks[role.parameter])
    training = config.mode is Mode.TRAIN
    inputs = model_inputs(model, lengths, role.dataset.batch_size, role.dataset.pack and training)
    shapes = state_shapes(model, partitioner, inputs, with_optimizer=model.optimizer_def is not None)
    if start.path:
        made = StartMaker(config, start, first, plan.shapes, shapes, partitioner, spec, pod)
        made.provide(workspace, report, in_bucket=in_bucket)
    examples = None if spec.settings.full_size else max(r.dataset.batch_size for r in roles)
    if examples:
        read = "examples of each task that eval and infer read"
        report.changes.append(Change(read, "all", str(examples), Reason.SHRINK, Changed.DATA))
    total = config.value(config.owner_of("total_steps")) if training else 0
    relative = config.value(config.owner_of("relative_steps")) if training else 0
    to_train = relative or (total - first if isinstance(total, int) else 0)
    changes = tuple(report.changes)
    data = RunData(roles, full.tasks)
    return PreparedRun(config, model, partitioner, data, shapes, first, to_train, examples, changes)


def _take_few_devices(plan: Planned, report: StageReport) -> None:
    """Makes T5X build the slice's mesh from now on, cut to a few positions along its data axis."""
    data = sizes.small_axis(plan.mesh["data"], plan.mesh["model"])
    if data < plan.mesh["data"]:
        install_mesh(plan.slice, data)
        executed = {**plan.mesh, "data": data}
        change = Change("mesh", mesh_text(plan.mesh), mesh_text(executed), Reason.SHRINK, Changed.MESH)
        report.changes.append(change)


def first_step_of(config: GinConfig, start: StartPoint) -> int:
    """Returns the step of the checkpoint to start from.

    If its path names no step, it is the step of public checkpoints, provided that training goes beyond that step.
    """
    if start.path is None:
        return 0
    if start.step is not None:
        return start.step
    total = config.value(config.owner_of("total_steps")) if config.mode is Mode.TRAIN else None
    if isinstance(total, int) and total <= _PRETRAINED_STEP:
        return 0
    return _PRETRAINED_STEP
