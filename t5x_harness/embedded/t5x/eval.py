"""Evaluates checkpoints on SeqIO tasks.

usage: python -m t5x.eval --gin_file=MODEL.gin --gin_file=t5x/configs/runs/eval.gin [--gin.MACRO=VALUE ...] [flags]
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import typing_extensions
from absl import logging
from t5x import checkpoints, gin_utils, models, partitioning, utils
from t5x import trainer as trainer_lib
from t5x._errors import ConfigError
from t5x._evaluated import EvaluatedList, checkpoints_to_evaluate
from t5x._lazy import EVALUATOR, seqio
from t5x._train_loop import as_iterator
from t5x._train_setup import verify_vocabularies
from t5x.train_state import TrainState


class SummarizeConfigFn(typing_extensions.Protocol):
    """Writes the config of an evaluation beside its results."""

    def __call__(self, model_dir: str, summary_writer: Any, step: int) -> None:
        """Writes to the folder ``model_dir`` and, unless it is None, to the ``clu`` writer ``summary_writer``."""


class InferenceEvaluator:
    """Evaluates train states on the tasks of one dataset config with their SeqIO metrics.

    ``log_dir`` is the parent folder of ``inference_eval``; without one SeqIO's loggers are off. The other arguments are
    those of ``t5x.train.train``.
    """

    def __init__(
        self,
        infer_eval_dataset_cfg: utils.DatasetConfig,
        inference_evaluator_cls: utils.EvaluatorConstructor,
        model: models.BaseModel,
        partitioner: partitioning.BasePartitioner,
        log_dir: str | None = None,
        verify_matching_vocabs_fn: Callable[..., None] | None = utils.verify_matching_vocabs,
    ):
        cfg = infer_eval_dataset_cfg
        verify_vocabularies(verify_matching_vocabs_fn, cfg, model)
        self._cfg = cfg
        self._model = model
        self._partitioner = partitioner
        where: dict[str, Any] = {"log_dir": os.path.join(log_dir, "inference_eval")} if log_dir else {"logger_cls": ()}
        self._evaluator = inference_evaluator_cls(
            mixture_or_task_name=cfg.mixture_or_task_name,
            feature_converter=model.FEATURE_CONVERTER_CLS(pack=False),
            eval_split=cfg.split,
            use_cached=cfg.use_cached,
            seed=cfg.seed,
            sequence_length=cfg.task_feature_lengths,
            use_memory_cache=cfg.use_memory_cache,
            **where,
        )
        self._infer_fns: dict[str, utils.InferFnCallable] = {}

    @property
    def model_feature_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of one example by feature, as the model receives it."""
        return self._evaluator.model_feature_shapes

    @property
    def eval_tasks(self) -> Sequence[seqio.Task]:
        """The tasks that have metrics and the split."""
        return self._evaluator.eval_tasks

    def close(self) -> None:
        """Finishes writing the metrics."""
        self._evaluator.close()

    def _infer_fn(self, method: str, train_state_axes: TrainState) -> utils.InferFnCallable:
        """Returns the partitioned ``model.METHOD``; made once, so compiled once."""
        if method not in self._infer_fns:
            self._infer_fns[method] = utils.get_infer_fn(
                infer_step=getattr(self._model, method),
                batch_size=self._cfg.batch_size,
                train_state_axes=train_state_axes,
                partitioner=self._partitioner,
            )
        return self._infer_fns[method]

    def evaluate(self, train_state: TrainState, train_state_axes: TrainState) -> seqio.AllMetricsFuture:
        """Runs the model over the tasks and starts to compute the metrics: SeqIO's future of value by metric, by task.

        Decoding draws from key 0 at every call.
        """
        fixed = {"train_state": train_state, "rng": jax.random.PRNGKey(0)}
        metrics, _ = self._evaluator.evaluate(
            compute_metrics=jax.process_index() == 0,
            step=int(checkpoints.get_local_data(train_state.step)),
            predict_fn=functools.partial(self._infer_fn("predict_batch", train_state_axes), **fixed),
            score_fn=functools.partial(self._infer_fn("score_batch", train_state_axes), train_state=train_state),
            predict_with_aux_fn=functools.partial(self._infer_fn("predict_batch_with_aux", train_state_axes), **fixed),
        )
        return metrics


def evaluate(
    *,
    model: models.BaseTransformerModel,
    dataset_cfg: utils.DatasetConfig,
    restore_checkpoint_cfg: utils.RestoreCheckpointConfig,
    partitioner: partitioning.BasePartitioner,
    output_dir: str,
    inference_evaluator_cls: utils.EvaluatorConstructor | None = EVALUATOR,
    training_evaluator_cls: type[trainer_lib.Trainer] | None = None,
    summarize_config_fn: SummarizeConfigFn = gin_utils.summarize_gin_config,
    train_state_initializer_cls: type[utils.TrainStateInitializer] = utils.TrainStateInitializer,
    train_eval_get_dataset_fn: utils.GetEvalDatasetCallable = utils.get_training_eval_datasets,
    fallback_init_rng: int | None = None,
    use_orbax: bool = True,
) -> None:
    """Evaluates one checkpoint, the latest one, or all in a folder, one after another.

    Writes ``config.gin``, ``model-info.txt``, ``inference_eval/`` with SeqIO's metrics and ``eval.TASK.ckpt``, a list
    of the finished checkpoints, into ``output_dir``. In mode 'all', an interrupted evaluation resumes where that
    list ends. ``restore_checkpoint_cfg`` and ``fallback_init_rng`` are those of ``t5x.infer.infer``.

    ``inference_evaluator_cls`` is ``seqio.Evaluator``, or is called like it. ``training_evaluator_cls`` is a
    trainer to evaluate with the training metrics too, into ``training_eval/TASK``; ``train_eval_get_dataset_fn`` opens
    its data, with its ``eval_steps`` bound.

    Raises:
        ConfigError: if there is nothing to evaluate on.
    """
    if dataset_cfg.module:
        utils.import_module(dataset_cfg.module)
    summarize_config_fn(model_dir=output_dir, summary_writer=None, step=0)
    with contextlib.ExitStack() as opened:
        evaluator = InferenceEvaluator(dataset_cfg, inference_evaluator_cls, model, partitioner, log_dir=output_dir)
        opened.callback(evaluator.close)
        if not evaluator.eval_tasks:
            raise ConfigError(
                f"there is nothing to evaluate: {dataset_cfg.mixture_or_task_name!r} has no metric_fns, or no split "
                f"{dataset_cfg.split!r}"
            )
        initializer = train_state_initializer_cls(
            optimizer_def=None,
            init_fn=model.get_initial_variables,
            input_shapes={
                name: (dataset_cfg.batch_size, *shape) for name, shape in evaluator.model_feature_shapes.items()
            },
            partitioner=partitioner,
        )
        axes = initializer.train_state_axes
        utils.log_model_info(
            os.path.join(output_dir, "model-info.txt"), initializer.global_train_state_shape, partitioner
        )
        trainer = None  # evaluates with the training metrics, and never trains
        if training_evaluator_cls:
            layout = partitioner.get_data_layout(dataset_cfg.batch_size)
            datasets = train_eval_get_dataset_fn(
                dataset_cfg, layout.shard_id, layout.num_shards, feature_converter_cls=model.FEATURE_CONVERTER_CLS
            )
            trainer = training_evaluator_cls(
                model=model,
                train_state=None,
                partitioner=partitioner,
                train_state_axes=axes,
                eval_names=datasets.keys(),
                summary_dir=output_dir,
                rng=jax.random.PRNGKey(0),
                learning_rate_fn=None,
                num_microbatches=None,
            )
            opened.callback(trainer.close)

        restore_checkpoint_cfg.strict = False
        evaluated = EvaluatedList(os.path.join(output_dir, f"eval.{dataset_cfg.mixture_or_task_name}.ckpt"))
        restore_cfg, paths = checkpoints_to_evaluate(restore_checkpoint_cfg, evaluated)
        if not paths:
            logging.warning("There is no checkpoint to evaluate; %s lists those that are done.", evaluated.path)
        fallback_key = None if fallback_init_rng is None else jax.random.PRNGKey(fallback_init_rng)
        for path in paths:
            train_state, _ = utils.create_checkpoint_manager_and_restore(
                initializer, partitioner, restore_cfg, path, fallback_key, use_orbax=use_orbax
            )
            step = int(checkpoints.get_local_data(train_state.step))
            if trainer is not None:
                trainer.train_state = train_state
                trainer.eval({task: as_iterator(dataset) for task, dataset in datasets.items()})
            evaluator.evaluate(train_state, axes).result()
            utils.sync_global_devices(f"t5x.eval: step {step} complete")
            if jax.process_index() == 0:
                evaluated.add(path)
    logging.info("The evaluation ended: %d checkpoints.", len(paths))


if __name__ == "__main__":
    from t5x import _script

    _script.run_script(evaluate)
