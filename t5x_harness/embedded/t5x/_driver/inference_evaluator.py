"""Evaluation by inference: SeqIO's evaluator, fed with the model's decoding and scoring."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import seqio
from t5x import checkpoints, utils
from t5x._driver.train_setup import vocabulary_check


class InferenceEvaluator:
    """Evaluates train states on the tasks of one dataset config with their SeqIO metrics."""

    def __init__(
        self,
        infer_eval_dataset_cfg: Any,
        inference_evaluator_cls: Callable[..., Any],
        model: Any,
        partitioner: Any,
        log_dir: str | None = None,
        verify_matching_vocabs_fn: Callable[..., None] | None = utils.verify_matching_vocabs,
    ):
        """Loads the targets of the tasks.

        Args:
            infer_eval_dataset_cfg: a ``t5x.utils.DatasetConfig``.
            inference_evaluator_cls: ``seqio.Evaluator`` or what is called like it.
            model: a ``t5x.models.BaseModel``.
            partitioner: a ``t5x.partitioning.BasePartitioner``.
            log_dir: parent folder of ``inference_eval``; None turns SeqIO's loggers off.
            verify_matching_vocabs_fn: raises where dataset and model have different vocabularies; None does not look.
        """
        cfg = infer_eval_dataset_cfg
        vocabulary_check(model, verify_matching_vocabs_fn)(cfg)
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
        self._infer_fns: dict[str, Callable[..., Any]] = {}

    @property
    def model_feature_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of one example by feature, as the model gets it."""
        return self._evaluator.model_feature_shapes

    @property
    def eval_tasks(self) -> Sequence[seqio.Task]:
        """The tasks that have metrics and the split."""
        return self._evaluator.eval_tasks

    def close(self) -> None:
        """Finishes writing the metrics."""
        self._evaluator.close()

    def _infer_fn(self, method: str, train_state_axes: Any) -> Callable[..., Any]:
        """Returns the partitioned ``model.METHOD``; made once, so compiled once."""
        if method not in self._infer_fns:
            self._infer_fns[method] = utils.get_infer_fn(
                infer_step=getattr(self._model, method),
                batch_size=self._cfg.batch_size,
                train_state_axes=train_state_axes,
                partitioner=self._partitioner,
            )
        return self._infer_fns[method]

    def evaluate(self, train_state: Any, train_state_axes: Any) -> Any:
        """Runs the model over the tasks and starts to compute the metrics.

        Decoding draws from key 0 at every call.

        Args:
            train_state: the parameters to evaluate.
            train_state_axes: a tree of partition specs like it.

        Returns:
            SeqIO's future of value by metric, by task.
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
