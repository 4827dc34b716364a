"""Trains a model on SeqIO tasks: pretraining or fine-tuning, with evaluation during training.

usage: python -m t5x.train --gin_file=RUN.gin [--gin_file=MODEL.gin ...] [--gin.MACRO=VALUE ...] [flags]
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np
from absl import logging
from jax.experimental import multihost_utils
from t5x import _train_setup, partitioning, utils
from t5x import eval as eval_lib
from t5x import models as models_lib
from t5x import train_state as train_state_lib
from t5x import trainer as trainer_lib
from t5x._errors import ConfigError
from t5x._lazy import EVALUATOR, tf
from t5x._train_loop import Evaluation, Saver, TrainLoop
from t5x._train_schedule import Schedule

TRAIN_METRIC_KEY = "train"


def run_actions(
    mode: trainer_lib.ActionMode,
    actions: trainer_lib.ActionMapType,
    train_state: train_state_lib.TrainState,
    metrics_by_task: Mapping[str, trainer_lib.MetricValueMapType],
) -> bool:
    """Runs the actions of ``mode`` on process 0; returns on all processes whether any of them stops the training.

    Raises:
        RuntimeError: if there are no metrics on process 0.
    """
    stop = False
    if jax.process_index() == 0:
        if not metrics_by_task:
            raise RuntimeError(f"there are no metrics for the {mode.name} actions: has the evaluation no task?")
        # A list, so that every action sees the metrics even after one has asked to stop.
        stop = any([action.run(train_state, metrics_by_task=metrics_by_task) for action in actions.get(mode, ())])  # noqa: C419
    return bool(multihost_utils.broadcast_one_to_all(np.array(stop)))


def _actions_by_mode(
    actions: Mapping[str, Sequence[trainer_lib.BaseAction]] | None, concurrent_metrics: bool
) -> trainer_lib.ActionMapType:
    modes = trainer_lib.ActionMode.__members__
    unknown = sorted(set((actions or {}).keys()) - set(modes))
    if unknown:
        raise ConfigError(f"train.actions has {', '.join(unknown)}, but its keys must be among {', '.join(modes)}")
    for key in (actions or {}) if concurrent_metrics else ():
        if key != "TRAIN_EVAL":
            logging.warning("The %s actions do not run: they need train.concurrent_metrics = False.", key)
    return {modes[key]: value for key, value in (actions or {}).items()}


def train(
    *,
    model: models_lib.BaseModel,
    train_dataset_cfg: utils.DatasetConfig,
    train_eval_dataset_cfg: utils.DatasetConfig | None,
    infer_eval_dataset_cfg: utils.DatasetConfig | None,
    checkpoint_cfg: utils.CheckpointConfig,
    partitioner: partitioning.BasePartitioner,
    trainer_cls: trainer_lib.BaseTrainerConstructor,
    model_dir: str,
    total_steps: int,
    eval_steps: int,
    eval_period: int,
    relative_steps: int | None = None,
    stats_period: int | None = None,
    random_seed: int | None,
    use_hardware_rng: bool = False,
    summarize_config_fn: Callable[..., None],
    inference_evaluator_cls: utils.EvaluatorConstructor = EVALUATOR,
    get_dataset_fn: utils.GetDatasetCallable = utils.get_dataset,
    concurrent_metrics: bool = True,
    actions: Mapping[str, Sequence[trainer_lib.BaseAction]] | None = None,
    train_eval_get_dataset_fn: utils.GetEvalDatasetCallable = utils.get_training_eval_datasets,
    run_eval_before_training: bool = False,
    train_state_initializer_cls: type[utils.TrainStateInitializer] = utils.TrainStateInitializer,
    use_orbax: bool = True,
    verify_matching_vocabs_fn: Callable[..., None] | None = utils.verify_matching_vocabs,
    gc_period: int = 0,
) -> tuple[int, train_state_lib.TrainState]:
    """Trains ``model`` from its last checkpoint, else another run's checkpoint, else new parameters.

    Writes ``config.gin``, ``model-info.txt``, ``checkpoint_STEP/`` and the TensorBoard folders ``train``,
    ``training_eval/TASK`` and ``inference_eval/TASK`` into ``model_dir``.

    Training goes on to ``total_steps``, counted from step 0 of the model, or for ``relative_steps`` from the run's
    first step. Training metrics are written every ``stats_period`` steps, by default the shortest period.
    Python's garbage is collected only every ``gc_period`` steps, or by Python itself if that is 0.
    ``random_seed`` is the seed of new parameters and dropout; None means the clock.

    ``train_eval_dataset_cfg`` is evaluated on with the training metrics (teacher forcing), ``eval_steps`` batches of
    it, and ``infer_eval_dataset_cfg`` by decoding and scoring; None leaves that out. Both happen every ``eval_period``
    steps, and before the first with ``run_eval_before_training``. With ``concurrent_metrics`` training metrics are
    written and inference metrics computed while training goes on. ``actions`` say what to do after TRAIN, TRAIN_EVAL or
    INFER_EVAL with the new metrics, such as stopping early; only those of TRAIN_EVAL run with ``concurrent_metrics``.

    ``trainer_cls`` is usually ``t5x.trainer.Trainer`` with its other arguments bound by Gin, and
    ``inference_evaluator_cls`` is ``seqio.Evaluator``, or is called like it. ``summarize_config_fn`` gets
    ``model_dir``, a ``clu`` metric writer and the step. ``verify_matching_vocabs_fn`` raises if dataset and model have
    different vocabularies; None skips the check.

    Returns:
        The last step and its train state.

    Raises:
        ConfigError: values of the config cannot work together; raised before any step if that is known then.
    """
    evaluates = train_eval_dataset_cfg or infer_eval_dataset_cfg
    periods = _train_setup.read_periods(
        checkpoint_cfg, eval_period=eval_period if evaluates else 0, gc_period=gc_period
    )
    actions_by_mode = _actions_by_mode(actions, concurrent_metrics)
    _train_setup.check_model_dir(model_dir, periods, use_orbax)
    tf.io.gfile.makedirs(model_dir)
    init_rng, trainer_rng = _train_setup.make_keys(random_seed, use_hardware_rng)
    inputs = _train_setup.open_inputs(
        model=model,
        partitioner=partitioner,
        checkpoint_cfg=checkpoint_cfg,
        train_cfg=train_dataset_cfg,
        train_eval_cfg=train_eval_dataset_cfg,
        eval_steps=eval_steps,
        get_dataset_fn=get_dataset_fn,
        train_eval_get_dataset_fn=train_eval_get_dataset_fn,
        verify_matching_vocabs_fn=verify_matching_vocabs_fn,
    )
    start = _train_setup.restore_or_initialize(
        model=model,
        partitioner=partitioner,
        inputs=inputs,
        checkpoint_cfg=checkpoint_cfg,
        model_dir=model_dir,
        init_rng=init_rng,
        saves=bool(periods.save),
        initializer_cls=train_state_initializer_cls,
        use_orbax=use_orbax,
    )
    first_step = start.step
    schedule = Schedule(
        first_step, first_step + relative_steps if relative_steps else total_steps, periods, stats_period
    )
    saver = Saver(start.checkpoint_manager, checkpoint_cfg.save, use_orbax)
    with contextlib.ExitStack() as opened:
        opened.callback(saver.close)
        trainer = trainer_cls(
            model=model,
            train_state=start.train_state,
            partitioner=partitioner,
            train_state_axes=start.initializer.train_state_axes,
            eval_names=inputs.train_eval.keys(),
            summary_dir=model_dir,
            rng=trainer_rng,
        )
        opened.callback(trainer.close)
        train_metrics = trainer.train_metrics_manager
        summarize_config_fn(model_dir, train_metrics.summary_writer, first_step)
        train_metrics.write_scalar("timing/init_or_restore_seconds", start.seconds, first_step)
        evaluator = None
        if infer_eval_dataset_cfg is not None:
            evaluator = eval_lib.InferenceEvaluator(
                infer_eval_dataset_cfg,
                inference_evaluator_cls,
                model,
                partitioner,
                log_dir=model_dir,
                verify_matching_vocabs_fn=verify_matching_vocabs_fn,
            )
            opened.callback(evaluator.close)

        def act(mode: str, metrics_by_task: Mapping[str, trainer_lib.MetricValueMapType]) -> bool:
            return run_actions(trainer_lib.ActionMode[mode], actions_by_mode, trainer.train_state, metrics_by_task)

        loop = TrainLoop(
            trainer=trainer,
            inputs=inputs,
            schedule=schedule,
            saver=saver,
            evaluation=Evaluation(
                trainer=trainer,
                datasets=inputs.train_eval,
                evaluator=evaluator if evaluator is not None and evaluator.eval_tasks else None,
                train_state_axes=start.initializer.train_state_axes,
                act=act,
                concurrent_metrics=concurrent_metrics,
            ),
            partitioner=partitioner,
            first_batch=start.first_batch,
            evaluate_first=run_eval_before_training,
            step=first_step,
        )
        del start  # the trainer owns the train state and donates its buffers
        if gc_period:  # the loop collects then
            gc.disable()
            opened.callback(gc.enable)
        loop.run()
    utils.sync_global_devices("t5x.train: complete")
    logging.info("Training ended at step %d.", loop.step)
    return loop.step, trainer.train_state


if __name__ == "__main__":
    from t5x import _script

    _script.run_script(train, define_flags=_script.define_process_flags, prepare=_script.join_processes)
