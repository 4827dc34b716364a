"""The training loop: steps in epochs, and what happens between them."""

from __future__ import annotations

import dataclasses
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from absl import logging
from t5x import checkpoints, utils
from t5x._errors import ConfigError
from t5x._lazy import tf
from t5x._train_schedule import Epoch, Schedule, Stop
from t5x._train_setup import Inputs
from t5x.trainer import PreemptionError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from t5x._train_setup import CheckpointManager
    from t5x.eval import InferenceEvaluator
    from t5x.partitioning import BasePartitioner
    from t5x.train_state import TrainState
    from t5x.trainer import ArrayMapFuture, BaseTrainer, Batch, MetricValueMapType


def as_iterator(dataset: tf.data.Dataset | Iterator[Batch]) -> Iterator[Batch]:
    """Returns an iterable for ``BaseTrainer.eval``: NumPy batches of a ``tf.data`` dataset, or the argument itself."""
    return dataset.as_numpy_iterator() if isinstance(dataset, tf.data.Dataset) else dataset


@dataclasses.dataclass(frozen=True)
class Saver:
    """Saves checkpoints, if the run saves any; orbax's manager (``use_orbax``) refuses to save a step twice."""

    manager: CheckpointManager | None
    save_cfg: utils.SaveCheckpointConfig | None
    use_orbax: bool

    @property
    def on(self) -> bool:
        """Whether there is a manager to save with, and a period."""
        return bool(self.manager is not None and self.save_cfg is not None and self.save_cfg.period)

    def has(self, step: int) -> bool:
        """Returns whether the checkpoint of ``step`` exists, if saving it again would fail."""
        return self.use_orbax and self.manager is not None and step in self.manager.all_steps()

    def save(self, train_state: TrainState, why: str) -> None:
        """Saves in the background; ``why`` is for the log."""
        if self.manager is None or self.save_cfg is None:
            return
        step = int(checkpoints.get_local_data(train_state.step))
        logging.info("Saving the checkpoint of step %d: %s.", step, why)
        self.manager.save(train_state, self.save_cfg.state_transformation_fns)

    def wait(self) -> None:
        if self.manager is not None:
            self.manager.wait_until_finished()

    def close(self) -> None:
        if self.manager is not None:
            self.manager.close()


@dataclasses.dataclass
class Evaluation:
    """Both kinds of evaluation of the state that the trainer holds.

    Attributes:
        datasets: by task name, for the training metrics.
        evaluator: evaluates by decoding and scoring, or None.
        act: called with the name of an action mode and metrics by task; returns whether to stop.
        concurrent_metrics: whether inference metrics are computed while training goes on.
    """

    trainer: BaseTrainer
    datasets: Mapping[str, tf.data.Dataset]
    evaluator: InferenceEvaluator | None
    train_state_axes: TrainState
    act: Callable[[str, Mapping[str, MetricValueMapType]], bool]
    concurrent_metrics: bool

    def with_training_metrics(self, *, compile_first: bool) -> None:
        """Evaluates with teacher forcing, if there is data for it."""
        if not self.datasets:
            return
        if compile_first:
            logging.info("Compiling the eval step.")
            self.trainer.compile_eval(
                {task: utils.get_zeros_batch_like_dataset(dataset) for task, dataset in self.datasets.items()}
            )
        logging.info("Evaluating with the training metrics.")
        metrics = self.trainer.eval({task: as_iterator(dataset) for task, dataset in self.datasets.items()})
        self.trainer.stop_training = self.act("TRAIN_EVAL", metrics)

    def with_inference(self, step: int) -> None:
        """Evaluates by decoding and scoring, if there are tasks with metrics for it."""
        if self.evaluator is None:
            return
        logging.info("Evaluating by inference.")
        began = time.time()
        metrics = self.evaluator.evaluate(self.trainer.train_state, self.train_state_axes)
        if not self.concurrent_metrics:
            self.trainer.stop_training = self.act("INFER_EVAL", metrics.result() or {})
        self.trainer.train_metrics_manager.write_scalar("timing/evaluate_seconds", time.time() - began, step)


@dataclasses.dataclass
class TrainLoop:
    """Trains from the schedule's first step to its last.

    Attributes:
        partitioner: lays out the batch to compile with.
        first_batch: future of the first batch.
        evaluate_first: whether to evaluate before the first step too.
        step: the step that was reached.
        summary: future of the metrics that were written last.
    """

    trainer: BaseTrainer
    inputs: Inputs
    schedule: Schedule
    saver: Saver
    evaluation: Evaluation
    partitioner: BasePartitioner
    first_batch: Future[Any]
    evaluate_first: bool
    step: int
    summary: ArrayMapFuture | None = dataclasses.field(default=None, init=False)

    def run(self) -> None:
        """Evaluates and saves as the schedule begins, then trains."""
        if self.evaluate_first:
            self.evaluation.with_training_metrics(compile_first=True)
            self.evaluation.with_inference(self.step)
        if self.saver.on and not self.saver.has(self.step):
            self.saver.save(self.trainer.train_state, "where the training begins")
        if self.schedule.nothing_to_do:
            logging.warning(
                "The checkpoint is at step %d and total_steps is %d: there is nothing to train.",
                self.step, self.schedule.total_steps,
            )  # fmt: skip
            return
        logging.info("Compiling the train step.")
        self.trainer.compile_train(self.inputs.dummy_batch(self.partitioner))
        self._await_first_batch()
        stop = Stop(self.step, saves=False)
        for epoch in self.schedule.epochs():
            if self.trainer.stop_training:
                logging.info("Stopping at step %d, as an action asked for.", self.step)
                break
            stop = self._train(epoch, stop)
            self._after(epoch)

    def _await_first_batch(self) -> None:
        began = time.time()
        try:
            self.first_batch.result()
        except StopIteration:
            raise ConfigError(
                "the training dataset has not one batch of train_dataset_cfg.batch_size "
                f"({self.inputs.data_layout.batch_size}) examples: is the split empty, or does a preprocessor drop "
                "all of it?"
            ) from None
        self.trainer.train_metrics_manager.write_scalar("timing/train_iter_warmup", time.time() - began, self.step)

    def _train(self, epoch: Epoch, stop: Stop) -> Stop:
        """Trains through ``epoch``, or until an action or a preemption ends it; returns the last stop."""
        logging.info("Epoch %d: training from step %d to %d.", epoch.number, self.step, epoch.end_step)
        try:
            while self.step < epoch.end_step:
                if self.trainer.stop_training:
                    if self.saver.on:
                        self.saver.save(self.trainer.train_state, "an action stopped the training")
                    break
                stop = self.schedule.next_stop(stop, epoch)
                self.summary = self.trainer.train(self.inputs.train_iter, stop.step - self.step, start_step=self.step)
                if not self.evaluation.concurrent_metrics:
                    self.trainer.stop_training = self.evaluation.act("TRAIN", {"train": self.summary.result()})
                if stop.saves:
                    self.saver.save(self.trainer.train_state, "it is one of checkpoint_steps")
                self.step = stop.step
        except PreemptionError:
            # The trainer takes over the new state when its loop ends. An error within the loop, after a step that
            # donated its buffers, leaves nothing to save, and the save fails; T5X does the same.
            if self.saver.on:
                self.saver.save(self.trainer.train_state, "the machine is going away")
                self.saver.wait()
            raise
        return stop

    def _after(self, epoch: Epoch) -> None:
        """Collects garbage, saves and evaluates at the end of ``epoch``, if each is due."""
        periods = self.schedule.periods

        def due(period: int) -> bool:
            return self.schedule.is_due(period, self.step, epoch)

        if due(periods.collect):
            gc.collect()
        if self.saver.on and due(periods.save):
            self._save_and_time()
        if due(periods.evaluate):
            first = (self.step - self.schedule.first_step) // periods.evaluate <= 1
            self.evaluation.with_training_metrics(compile_first=first and not self.evaluate_first)
            self.evaluation.with_inference(self.step)

    def _save_and_time(self) -> None:
        if self.saver.has(self.step):
            raise ConfigError(
                f"a TRAIN action of train.actions stopped the training at step {self.step}, in its last epoch. The "
                "checkpoint is saved, but T5X saves it a second time there and fails, so this fails too: let the "
                "action follow TRAIN_EVAL instead"
            )
        assert self.summary is not None  # an epoch has been trained
        self.summary.result()  # the last step has ended before the clock starts
        began = time.time()
        self.saver.save(self.trainer.train_state, "it is due")
        self.saver.wait()
        self.trainer.train_metrics_manager.write_scalar("timing/checkpoint_seconds", time.time() - began, self.step)
