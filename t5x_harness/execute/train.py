"""The train stage: T5X's own ``train`` on the shrunk config, then a check of its outcome."""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gin
import jax
import numpy as np
from flax import traverse_util
from t5x import adafactor, checkpoints
from t5x import train as train_module

from t5x_harness.execute.execution import Execution, Trained
from t5x_harness.execute.host_files import of_host
from t5x_harness.execute.hosts import own_part
from t5x_harness.execute.output import checkpoints_in, scalars_in
from t5x_harness.execute.record import Recorder
from t5x_harness.findings.stage_report import StageReport
from t5x_harness.findings.work import infinite_losses, loss_in_words, loss_measures
from t5x_harness.gin.config import GinConfig
from t5x_harness.resolve.datasets import few_examples
from t5x_harness.upstream.t5x import watch_batches

_SAMPLE = 4096
"""The number of values of each array that are compared. In a model that trains, all values of some array change."""

_NOTHING = 1e-7
"""A change, relative to the array's size, that float32 can hardly represent."""

_LEAST_RATE = 1e-5
"""The sum of all steps' learning rates below which parameters may well remain the same."""


def train_stage(run: Execution, report: StageReport) -> None:
    """Trains the shrunk config, and checks that the losses are finite and the last checkpoint holds the final state."""
    small, output = run.prepared(report), run.written
    counter = _Counter(small.first_step, lambda step: run.progress({"stage": "train", "step": step, "of": small.steps}))
    trainer_cls = small.config.build("trainer_cls")
    if trainer_cls is not None and (run.spec.resumes or run.pod):
        trainer_cls = Recorder(of_host(run.recorded, run.host)).watch(trainer_cls)
    watched = {} if trainer_cls is None else {"trainer_cls": counter.watch(trainer_cls)}
    with few_examples(small.data.all_tasks, small.examples):
        step, state = gin.get_configurable(train_module.train)(**watched)
    jax.block_until_ready(jax.tree.leaves(state))
    step = int(step)
    signs = [step - counter.began, int(state.step) - counter.began]
    if counter.batches is not None:
        signs.append(counter.batches)
    report.exercised = max(0, min(signs))  # the smallest number of steps that any evidence shows
    report.idle = f"training ended at step {step}, began at step {counter.began} and made no step between them"
    scalars = scalars_in(output.local)
    _losses(scalars, report)
    if report.exercised and not report.failed:
        _learnt(counter, state, scalars, report)
    written = checkpoints_in(output.local)
    report.fact("checkpoints", ", ".join(f"{c.step} ({c.num_bytes / 2**20:.1f} MiB)" for c in written) or "none")
    checkpoint = os.path.join(output.address, f"checkpoint_{written[-1].step}") if written else None
    if not written:
        report.not_checked.append(
            "saving and restoring: the config writes no checkpoint; eval and infer begin with the final state, which "
            "is saved for them"
        )
        checkpoint = _saved(state, small.partitioner, run.workspace / "final")
    elif written[-1].step != step:
        report.find(
            "RUN03",
            f"the last checkpoint is of step {written[-1].step}, and training ended at step {step}",
            fix="let the checkpoint period or checkpoint_steps end at the last step",
        )
    else:
        _restores(small.config, state, output.address, step, report)
    run.trained = Trained(step, checkpoint, counter.model)


class _Counter:
    """Counts the batches that a trainer takes, one for each train step, and observes which model it trains.

    Attributes:
      model: the model that is trained; None if it is not passed to the trainer by name.
      began: the step of the train state that was passed to the trainer.
      params: samples of that state's parameters; none if it is not passed to the trainer by name.
      batches: the number of batches that were taken; None while no trainer is watched.
    """

    def __init__(self, first_step: int, on_step: Callable[[int], None]) -> None:
        self.model: Any = None
        self.began = first_step
        self.params: list[np.ndarray[Any, Any]] = []
        self.batches: int | None = None
        self._on_step = on_step

    def watch(self, trainer_cls: Any) -> Callable[..., Any]:
        """Returns the same trainer, with its train loop observed through the batches that it draws."""

        def make(*args: Any, **kwargs: Any) -> Any:
            trainer = trainer_cls(*args, **kwargs)
            self.model = kwargs.get("model")
            if (given := kwargs.get("train_state")) is not None:
                self.began = int(given.step)
                self.params = sampled(given.params)
            if watch_batches(trainer, self._taken):
                self.batches = 0
            return trainer

        return make

    def _taken(self, _: Any) -> None:
        self.batches = (self.batches or 0) + 1
        self._on_step(self.batches)


def _losses(scalars: dict[str, dict[int, float]], report: StageReport) -> None:
    if not scalars.get("train/loss"):
        report.not_checked.append("the loss: training wrote no train/loss")
        return
    report.fact("loss", loss_in_words(scalars))
    report.measures += loss_measures(scalars)
    report.add(infinite_losses(report.stage, scalars))
    evals = sorted(t.split("/")[1] for t in scalars if t.startswith("training_eval/") and t.endswith("/loss"))
    report.fact("teacher-forced eval", ", ".join(evals) or "none")


def _learnt(counter: _Counter, state: Any, scalars: dict[str, dict[int, float]], report: StageReport) -> None:
    """Adds a finding if T5X's Adafactor changed nothing at the learning rates that T5X logged.

    Other optimizers may have their own rates, or accumulate gradients over many steps.
    """
    if not isinstance(getattr(counter.model, "optimizer_def", None), adafactor.Adafactor):
        return
    rates = list(scalars.get("train/learning_rate", {}).values())
    if problem := nothing_learnt(counter.params, state.params, rates):
        report.find(
            "RUN02",
            problem,
            fix="look for a number out of its range: an epsilon, a threshold or an offset of the optimizer, or a share "
            "of dropout",
        )


def sampled(params: Any) -> list[np.ndarray[Any, Any]]:
    """Copies the first values of each array, before T5X's train step reuses its memory.

    Args:
      params: a tree of arrays.

    Returns:
      The copies, of the values that this process holds.
    """
    return [np.array(own_part(leaf).reshape(-1)[:_SAMPLE], np.float32) for leaf in jax.tree.leaves(params)]


def _change(before: np.ndarray[Any, Any], after: np.ndarray[Any, Any]) -> float:
    """Returns the change in an array relative to its size: 1 or more if it was all zeros; NaN counts as a change."""
    if before.shape != after.shape:
        return 1.0
    difference = np.linalg.norm(after - before)
    if not np.isfinite(difference):
        return 1.0
    size = float(np.linalg.norm(before)) or float(difference) or 1.0
    return float(difference) / size


def nothing_learnt(before: Sequence[np.ndarray[Any, Any]], params: Any, rates: Sequence[float]) -> str | None:
    """Describes a training that changed no parameter although its learning rates were not zero.

    Args:
      before: the result of :func:`sampled` before training.
      params: the parameters after it.
      rates: the learning rate of each step, as T5X wrote it.

    Returns:
      The finding; None if a parameter changed, or if that cannot be decided.
    """
    if not before or not rates or sum(rates) < _LEAST_RATE:
        return None
    pairs = zip(before, sampled(params), strict=True)
    change = max((_change(one, other) for one, other in pairs), default=0.0)
    if change >= _NOTHING:
        return None
    return (
        f"training changed nothing: at learning rates up to {max(rates):.3g}, no parameter changed by more than "
        f"{change:.1g} of its size"
    )


def _saved(state: Any, partitioner: Any, folder: Path) -> str:
    """Saves a train state as a checkpoint in a new folder, and returns its path."""
    folder.mkdir(exist_ok=True)  # the hosts of a pod write it together
    manager = checkpoints.OrbaxCheckpointManagerInterface(str(folder), state, partitioner)
    manager.save(state, force=True)
    manager.wait_until_finished()
    manager.close()
    return str(folder / f"checkpoint_{int(state.step)}")


def _restores(config: GinConfig, state: Any, model_dir: str, step: int, report: StageReport) -> None:
    """Restores the last checkpoint with the runtime's own manager and compares it leaf by leaf."""
    partitioner = config.build("partitioner")
    save = config.build("checkpoint_cfg").save
    # Not a manager of MODEL_DIR: at gs://, orbax deletes folders in it that are not checkpoints, like TensorBoard's.
    with tempfile.TemporaryDirectory() as elsewhere:
        manager = checkpoints.OrbaxCheckpointManagerInterface(elsewhere, state, partitioner, save_dtype=save.dtype)
        restored = _leaves(manager.restore(path=os.path.join(model_dir, f"checkpoint_{step}")))
        manager.close()
    expected = _leaves(state)
    if save.state_transformation_fns:
        report.not_checked.append("the saved state leaf by leaf: the config transforms it while saving")
        return
    different = sorted(set(expected) ^ set(restored)) or [
        path for path, value in expected.items() if not _same(value, restored[path], save.dtype)
    ]
    if different:
        report.find(
            "RUN05",
            f"{different[0]}{f' and {len(different) - 1} more arrays' if different[1:] else ''} of checkpoint_{step} "
            "restored differs from the state that training returned",
            fix="look at the config's own checkpointer or state transformations",
        )
    else:
        report.fact("restored", f"checkpoint_{step}: {len(expected)} arrays equal to the final state")


def _leaves(state: Any) -> dict[str, Any]:
    flat: dict[str, Any] = traverse_util.flatten_dict(dict(state.state_dict()), sep="/")
    return {path: value for path, value in flat.items() if hasattr(value, "shape")}


def _same(ours: Any, stored: Any, dtype: str | None) -> bool:
    """Returns whether a stored array equals ours at the precision that it was saved with."""
    a, b = own_part(ours), own_part(stored)
    if a.shape != b.shape:
        return False
    if dtype and jax.numpy.issubdtype(a.dtype, np.floating):
        a, b = (np.asarray(jax.numpy.asarray(x, dtype)) for x in (a, b))
    return bool(np.array_equal(a, b, equal_nan=np.issubdtype(a.dtype, np.floating)))
