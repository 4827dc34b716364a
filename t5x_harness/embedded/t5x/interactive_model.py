"""A model for notebooks: it trains on, predicts, scores and evaluates lists of texts.

Each text goes through the model's own vocabulary; there is no task to register and no gin file to write. Once it works,
:func:`get_seqio_task_from_examples` and :func:`get_gin_config_from_interactive_model` make both for the scripts.
"""

from __future__ import annotations

import abc
import enum
import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from absl import logging
from jax.experimental import multihost_utils
from t5x import models, partitioning, utils
from t5x import train_state as train_state_lib
from t5x import trainer as trainer_lib
from t5x._infer_chunks import Inferences, in_order
from t5x._lazy import clu_data, seqio, tf

Examples: TypeAlias = Sequence[str | dict[str, str]]
"""Inputs alone, or mappings with "input" and "target"."""
Preprocessors: TypeAlias = Sequence[Callable[..., "tf.data.Dataset"]]
BatchesType: TypeAlias = Examples | Sequence[Examples]


def _usual_preprocessors() -> tuple[Any, ...]:
    return seqio.preprocessors.tokenize, seqio.preprocessors.append_eos


class InferenceType(enum.Enum):
    """The kind of inference: decoded predictions with their scores, or the scores of given targets."""

    PREDICT_WITH_AUX = 1
    SCORE = 2


class T5XScriptType(enum.Enum):
    """The purpose of a generated config."""

    FINETUNING = 1
    INFERENCE = 2
    EVALUATION = 3
    PRETRAINING = 4


class InteractiveModel(abc.ABC):  # noqa: B024 (as in T5X, where nothing of it is abstract either)
    """A model with its train state, its trainer and its checkpoints.

    Examples are texts, inputs alone or mappings with "input" and "target".

    Args:
        batch_size: examples in a batch, for training and inference.
        task_feature_lengths: by task feature, the length to cut it to.
        output_dir: folder of checkpoints, ``model-info.txt`` and metrics; made if it is not there.
        partitioner: lays parameters and data over the devices.
        model: what to train and infer with.
        dtype: the dtype of restored and saved parameters; None keeps theirs.
        restore_mode: 'specific' for the checkpoint at ``checkpoint_path``, 'latest' for the last one in that folder.
        checkpoint_path: the checkpoint to start from; if empty, the last one in ``output_dir``, or new parameters.
        input_shapes: the shape of each model feature of a global batch.
        input_types: the dtype of each; float32 by default.
        init_random_seed: the seed of new parameters and dropout.
        add_eos: end inputs and targets with the end-of-sequence token.
        eval_names: the names that the trainer's ``eval`` will be given.

    Raises:
        ValueError: the partitions do not divide the devices, or the restore mode asks for several checkpoints.
    """

    def __init__(
        self,
        batch_size: int,
        task_feature_lengths: Mapping[str, int],
        output_dir: str,
        partitioner: partitioning.BasePartitioner,
        model: models.BaseTransformerModel,
        dtype: str | None,
        restore_mode: str,
        checkpoint_path: str,
        input_shapes: Mapping[str, utils.Array],
        input_types: Mapping[str, utils.DType] | None = None,
        init_random_seed: int = 42,
        add_eos: bool = True,
        eval_names: Sequence[str] | None = None,
    ):
        _check_partitions(partitioner)
        self._batch_size = batch_size
        self._task_feature_lengths = task_feature_lengths
        self._output_dir = re.sub("(?<!:)//+", "/", output_dir)
        tf.io.gfile.makedirs(self._output_dir)
        self._partitioner = partitioner
        self._model = model
        self._feature_converter = model.FEATURE_CONVERTER_CLS(pack=False)
        vocabularies = {"inputs": model.input_vocabulary, "targets": model.output_vocabulary}
        self._features = {name: seqio.Feature(vocab, add_eos=add_eos) for name, vocab in vocabularies.items()}
        self._infer_fns: dict[Any, utils.InferFnCallable] = {}
        self._train_summary: Any = None

        utils.set_hardware_rng_ops()
        seed = int(multihost_utils.broadcast_one_to_all(np.int32(init_random_seed)))
        init_rng, trainer_rng = jax.random.split(jax.random.PRNGKey(seed))
        self._train_state_initializer = utils.TrainStateInitializer(
            optimizer_def=model.optimizer_def,
            init_fn=model.get_initial_variables,
            input_shapes=input_shapes,
            input_types=input_types,
            partitioner=partitioner,
        )
        self._save_checkpoint_cfg = utils.SaveCheckpointConfig(dtype=dtype, keep=5, save_dataset=False, period=1000)
        self._restore_checkpoint_cfg = None
        if checkpoint_path:
            self._restore_checkpoint_cfg = utils.RestoreCheckpointConfig(
                dtype=dtype, mode=restore_mode, path=checkpoint_path
            )
        self._train_state = self._restore() or self._train_state_initializer.from_scratch(init_rng)
        if isinstance(self._train_state, Sequence):
            raise ValueError(
                "Expected a single train state, but instead received a Sequence. "
                f"(restore_mode={restore_mode!r} restores several checkpoints: use 'specific' or 'latest')"
            )
        shape = self._train_state_initializer.global_train_state_shape
        utils.log_model_info(os.path.join(self._output_dir, "model-info.txt"), shape, partitioner)
        self._trainer = trainer_lib.Trainer(
            model=model,
            train_state=self._train_state,
            partitioner=partitioner,
            eval_names=eval_names or [],
            summary_dir=self._output_dir,
            train_state_axes=self.train_state_axes,
            rng=trainer_rng,
            learning_rate_fn=utils.create_learning_rate_scheduler(),
            num_microbatches=None,
        )

    def _restore(self) -> Any:
        """Returns the state that the config names, else the last one of the output folder, else None.

        Without a config, T5X makes a manager that cannot restore, and so fails if the output folder has a checkpoint.
        """
        own = utils.RestoreCheckpointConfig(
            path=self._output_dir, mode="latest", dtype=self._save_checkpoint_cfg.dtype, restore_dataset=False
        )
        named = self._restore_checkpoint_cfg
        self._checkpoint_manager = utils.LegacyCheckpointManager(
            save_cfg=self._save_checkpoint_cfg,
            restore_cfg=named or own,
            train_state_shape=self._train_state_initializer.global_train_state_shape,
            partitioner=self._partitioner,
            ds_iter=None,
            model_dir=self._output_dir,
        )
        found, paths = utils.get_first_valid_restore_config_and_paths([named, own] if named else [own])
        return self._checkpoint_manager.restore(paths, found) if paths else None

    @property
    def trainer(self) -> trainer_lib.Trainer:
        """Runs the train steps."""
        return self._trainer

    @property
    def partitioner(self) -> partitioning.BasePartitioner:
        """Lays parameters and data over the devices."""
        return self._partitioner

    @property
    def model(self) -> models.BaseTransformerModel:
        """The model to train and infer with."""
        return self._model

    @property
    def train_state(self) -> train_state_lib.TrainState:
        """Parameters and optimizer state after the last step."""
        return self._train_state

    @property
    def train_state_axes(self) -> train_state_lib.TrainState:
        """A tree like the train state, of partition specs."""
        return self._train_state_initializer.train_state_axes

    @property
    def train_summary(self) -> Any:
        """Metrics of the last train step, by name."""
        return self._train_summary.result()

    @property
    def step(self) -> int:
        """How many steps the parameters have been trained for."""
        return int(utils.get_local_data(self._train_state.step))

    def train_step(self, examples: Examples) -> None:
        """Trains one step, on the first batch of the examples, and saves a checkpoint.

        Raises:
            ValueError: there are fewer examples than a batch.
        """
        self.train_step_with_preprocessors(examples=examples, preprocessors=_usual_preprocessors())

    def train_step_with_preprocessors(self, examples: Examples, preprocessors: Preprocessors) -> None:
        """Does what :meth:`train_step` does, with other preprocessors.

        Each maps a dataset to a dataset; they are applied in order, and the last yields inputs and targets as
        tokens.

        Raises:
            ValueError: there are fewer examples than a batch, or the preprocessors do not yield such features.
        """
        if len(examples) < self._batch_size:
            raise ValueError(
                "At least one batch of data must be provided. Please decrease the batch_size or provide more examples. "
                f"(batch_size={self._batch_size}, {len(examples)} examples)"
            )
        if self._trainer.stop_training:
            logging.info("The trainer is asked to stop: no step is taken.")
            return
        _, features = self._tokenize(examples, preprocessors)
        batches = features.padded_batch(self._batch_size, drop_remainder=True)
        try:
            self.train_step_from_batch_iterator(clu_data.dataset_iterator.TfDatasetIterator(batches, checkpoint=True))
        except trainer_lib.PreemptionError:
            logging.info("The machine is about to go away: saving a checkpoint.")
            self.save_checkpoint()
            raise
        self.save_checkpoint()

    def train_step_from_batch_iterator(self, iterator: Any) -> None:
        """Trains one step, on the next batch of model features (arrays [batch, length] by name), and saves nothing."""
        self._train_summary = self._trainer.train(iterator, 1, start_step=self.step)
        utils.sync_global_devices("t5x.interactive_model: step complete")
        self._train_state = self._trainer.train_state

    def save_checkpoint(self) -> None:
        """Saves the train state in the output folder."""
        self._checkpoint_manager.save(self._trainer.train_state, self._save_checkpoint_cfg.state_transformation_fns)

    def _tokenize(self, examples: Examples, preprocessors: Preprocessors) -> tuple[tf.data.Dataset, tf.data.Dataset]:
        """Returns the examples with their task features, and their model features."""
        dataset = get_dataset_from_natural_text_examples(
            examples, preprocessors, self._task_feature_lengths, self._features
        )
        return dataset, self._feature_converter(dataset, task_feature_lengths=self._task_feature_lengths)

    def infer_with_preprocessors(
        self, mode: InferenceType, examples: Examples, preprocessors: Preprocessors, **inference_kwargs: Any
    ) -> Inferences:
        """Predicts or scores any number of examples; for preprocessors see :meth:`train_step_with_preprocessors`.

        ``inference_kwargs`` are for the model's ``predict_batch_with_aux`` or ``score_batch``.

        Returns:
            For each example, its features and its prediction, as bytes, or its score; and, by name, the other values
            that the model returned, each a list over the examples.

        Raises:
            ValueError: the mode is not an ``InferenceType``.
        """
        infer_fn = functools.partial(self._infer_fn(mode, inference_kwargs), train_state=self._train_state)
        inferred: list[tuple[Mapping[str, Any], Any]] = []
        all_aux: dict[str, list[Any]] = {}
        batches = tf.data.Dataset.zip(self._tokenize(examples, preprocessors)).padded_batch(self._batch_size)
        for number, (task_features, model_features) in enumerate(batches):
            rows = tf.data.Dataset.from_tensor_slices(model_features).enumerate()
            outputs, aux = in_order(infer_fn(rows, rng=jax.random.fold_in(jax.random.PRNGKey(0), number)))
            if mode is InferenceType.PREDICT_WITH_AUX:
                vocabulary = self._features["targets"].vocabulary
                outputs = [vocabulary.decode_tf(tf.constant(tokens)).numpy() for tokens in outputs]
            inputs = tf.data.Dataset.from_tensor_slices(task_features).as_numpy_iterator()
            inferred += zip(inputs, outputs, strict=True)
            for name, values in aux.items():
                all_aux.setdefault(name, []).extend(values)
        return inferred, all_aux

    def _infer_fn(self, mode: InferenceType, inference_kwargs: Mapping[str, Any]) -> utils.InferFnCallable:
        """Returns a function that infers a dataset; compiled once for each mode and its arguments."""
        if not isinstance(mode, InferenceType):
            raise ValueError(f"Mode must be `predict_with_aux`, or `score`, but instead was {mode}.")
        key = (mode, *seqio.utils.flatten_dict(inference_kwargs).items())
        if key not in self._infer_fns:
            model = self._model
            step = model.score_batch if mode is InferenceType.SCORE else model.predict_batch_with_aux
            self._infer_fns[key] = utils.get_infer_fn(
                infer_step=functools.partial(step, **inference_kwargs),
                batch_size=self._batch_size,
                train_state_axes=self.train_state_axes,
                partitioner=self._partitioner,
            )
        return self._infer_fns[key]

    def predict_with_aux(self, examples: Examples) -> Inferences:
        """Predicts targets; see :meth:`infer_with_preprocessors`."""
        return self.infer_with_preprocessors(InferenceType.PREDICT_WITH_AUX, examples, _usual_preprocessors())

    def score(self, examples: Examples) -> Sequence[Any]:
        """Scores the examples' targets; see :meth:`infer_with_preprocessors`."""
        scores, _ = self.infer_with_preprocessors(InferenceType.SCORE, examples, _usual_preprocessors())
        return scores

    def evaluate(
        self, examples: Examples, metric_fns: Sequence[seqio.dataset_providers.MetricFnCallable]
    ) -> Mapping[Any, Any]:
        """Computes metrics of predictions or scores; see :meth:`evaluate_with_preprocessors`."""
        return self.evaluate_with_preprocessors(examples, _usual_preprocessors(), metric_fns, postprocessor=None)

    def evaluate_with_preprocessors(
        self,
        examples: Examples,
        preprocessors: Preprocessors,
        metric_fns: Sequence[seqio.dataset_providers.MetricFnCallable],
        postprocessor: Callable[..., Any] | None = None,
    ) -> Mapping[Any, Any]:
        """Computes metrics of predictions or scores; for preprocessors see :meth:`train_step_with_preprocessors`.

        ``metric_fns`` take (targets, predictions), (targets, predictions, aux_values) or (targets, scores), and each
        returns a mapping from name to value. ``postprocessor`` turns a target, with the arguments ``example`` and
        ``is_target``, into their argument.

        Returns:
            The values by name, in process 0; nothing in others.

        Raises:
            ValueError: a metric has other arguments, or two return the same name.
        """
        kinds = [_metric_arguments(fn) for fn in metric_fns]
        dataset, _ = self._tokenize(examples, preprocessors)
        targets = [
            postprocessor(example["targets_pretokenized"], example=example, is_target=True)
            if postprocessor
            else example["targets_pretokenized"]
            for example in dataset.as_numpy_iterator()
        ]
        given: dict[str, Any] = {"targets": targets}
        if any("predictions" in kind for kind in kinds):
            inferred, given["aux_values"] = self.infer_with_preprocessors(
                InferenceType.PREDICT_WITH_AUX, examples, preprocessors
            )
            given["predictions"] = [prediction.decode("utf-8") for _, prediction in inferred]
        if any("scores" in kind for kind in kinds):
            inferred, _ = self.infer_with_preprocessors(InferenceType.SCORE, examples, preprocessors)
            given["scores"] = [score for _, score in inferred]
        if jax.process_index() != 0:
            return {}
        metrics: dict[Any, Any] = {}
        for fn, kind in zip(metric_fns, kinds, strict=True):
            for name, value in fn(*(given[argument] for argument in kind)).items():
                if name in metrics:
                    raise ValueError(f"Duplicate metric key '{name}' in Task.")
                metrics[name] = value
        return metrics

    def train_loop(
        self,
        num_steps: int,
        eval_period: int | None = 1,
        train_batches: BatchesType | None = None,
        predict_batches: Sequence[Examples] | None = None,
        score_batches: Sequence[Examples] | None = None,
        eval_batches: Sequence[Examples] | None = None,
        metrics_fns: Sequence[seqio.dataset_providers.MetricFnCallable] | None = None,
    ) -> tuple[Any, Any, Any]:
        """Trains some steps and infers in between; it shows how the other methods work together.

        ``train_batches`` is one batch for all steps, or a list of batches to cycle through; None does not train.
        Inference runs after the first step, and then every ``eval_period`` steps.

        Returns:
            The last predictions, scores and metrics; None for what was not done.
        """
        predictions = scores = metrics = None
        for step, batch in enumerate(_one_a_step(train_batches, num_steps)):
            if batch:
                self.train_step(batch)
            if step % (eval_period or 1):
                continue
            for examples in predict_batches or ():
                predictions, _ = self.predict_with_aux(examples)
            for examples in score_batches or ():
                scores = self.score(examples)
            for examples in eval_batches or ():
                metrics = self.evaluate(examples, metrics_fns or ())
        return predictions, scores, metrics


def _check_partitions(partitioner: Any) -> None:
    partitions = int(np.prod(partitioner._model_parallel_submesh or partitioner._num_partitions))
    if jax.device_count() % partitions:
        raise ValueError(
            "The number of devices available must be a multiple of the number of partitions. There are "
            f"{jax.device_count()} devices available, but the number of partitions is set to {partitions}. Please "
            "provide a different number of partitions."
        )


def _metric_arguments(metric_fn: Callable[..., Any]) -> tuple[str, ...]:
    parameters = inspect.signature(metric_fn).parameters.values()
    names = tuple(entry.name for entry in parameters if entry.default is inspect.Parameter.empty)
    if names not in (("targets", "scores"), ("targets", "predictions"), ("targets", "predictions", "aux_values")):
        raise ValueError(
            "Metric functions must have positional arguments matching either ('targets', 'scores'), "
            "('targets', 'predictions') or ('targets', 'predictions', 'aux_values'). "
            f"Got: {names}"
        )
    return names


def _one_a_step(batches: Any, num_steps: int) -> Iterable[Any]:
    """Returns a batch for each step: the only one, or the list of them in a cycle."""
    if not batches:
        return [None] * num_steps
    if isinstance(batches[0], Mapping | str):
        return [batches] * num_steps
    return [batches[step % len(batches)] for step in range(num_steps)]


def get_dataset_from_natural_text_examples(
    examples: Examples,
    preprocessors: Preprocessors,
    task_feature_lengths: Mapping[str, int],
    features: Mapping[str, Any],
) -> tf.data.Dataset:
    """Makes a dataset of unbatched examples from texts: inputs alone, or mappings with "input" and "target".

    A preprocessor that has an argument ``sequence_length`` gets the lengths to cut features to, one with
    ``output_features`` the ``seqio.Feature`` by name that the last of them has to give.

    Raises:
        ValueError: a feature is missing afterwards, or has another dtype or rank.
    """
    pairs = [example if isinstance(example, dict) else {"input": example, "target": ""} for example in examples]
    dataset = tf.data.Dataset.from_tensor_slices({f"{name}s": [pair[name] for pair in pairs] for name in pairs[0]})
    offered = {"sequence_length": task_feature_lengths, "output_features": features}
    for preprocessor in preprocessors:
        takes = inspect.signature(preprocessor).parameters
        dataset = preprocessor(dataset, **{name: value for name, value in offered.items() if name in takes})
    _check_features(dataset.element_spec, features)
    return seqio.utils.trim_dataset(dataset, task_feature_lengths, features).prefetch(tf.data.AUTOTUNE)


def _check_features(specs: Mapping[str, tf.TensorSpec], features: Mapping[str, Any]) -> None:
    for name, feature in features.items():
        spec = specs.get(name)
        if spec is None and feature.required:
            raise ValueError(f"Task dataset is missing expected output feature after preprocessing: {name}")
        if spec is None:
            continue
        for what, got, expected in (
            ("type", spec.dtype.name, tf.as_dtype(feature.dtype).name),
            ("rank", spec.shape.rank, feature.rank),
        ):
            if got != expected:
                raise ValueError(
                    f"Task dataset has incorrect {what} for feature '{name}' after preprocessing: Got {got}, expected "
                    f"{expected}"
                )


def get_batches_from_seqio(
    task_or_mixture_name: str,
    split: str,
    batch_size: int,
    num_batches: int,
    get_pretokenized_examples: bool = True,
    sequence_length: Mapping[str, int] | None = None,
    **get_dataset_kwargs: Any,
) -> Sequence[Sequence[Mapping[str, str]]]:
    """Reads batches of a SeqIO task or mixture for an :class:`InteractiveModel`.

    ``get_pretokenized_examples`` selects the texts before tokenization instead of the tokens.

    Returns:
        The batches, each a list of mappings with "input" and "target".

    Raises:
        ValueError: there are too few examples.
    """
    wanted = batch_size * num_batches
    dataset = seqio.get_mixture_or_task(task_or_mixture_name).get_dataset(
        sequence_length=sequence_length, split=split, **get_dataset_kwargs
    )
    suffix = "_pretokenized" if get_pretokenized_examples else ""

    def value(entry: Any) -> Any:
        return entry if get_pretokenized_examples else entry.tolist()

    examples = [
        {"input": value(entry[f"inputs{suffix}"]), "target": value(entry[f"targets{suffix}"])}
        for entry in dataset.take(wanted).as_numpy_iterator()
    ]
    if len(examples) < wanted:
        raise ValueError(
            f"Not enough examples in Task/Mixture. User requested {num_batches} batches of size {batch_size} for a "
            f"total of {wanted} examples. Only {len(examples)} available in Task/Mixture."
        )
    return [examples[start : start + batch_size] for start in range(0, wanted, batch_size)]


def get_seqio_task_from_examples(
    task_name: str,
    interactive_model: InteractiveModel,
    examples: Examples,
    preprocessors: Preprocessors,
    metric_fns: Sequence[seqio.dataset_providers.MetricFnCallable] | None = None,
    add_to_registry: bool = True,
) -> seqio.Task | seqio.Mixture:
    """Registers a SeqIO task for the scripts, with the same examples in its splits "train" and "validation".

    It has the model's vocabularies and lengths. Without ``add_to_registry``, the task that is already registered under
    this name is returned.
    """

    def read(split: str, shuffle_files: bool) -> tf.data.Dataset:
        return get_dataset_from_natural_text_examples(examples, (), interactive_model._task_feature_lengths, {})

    if add_to_registry:
        seqio.TaskRegistry.add(
            task_name,
            seqio.FunctionDataSource(read, splits=["train", "validation"]),
            preprocessors=preprocessors,
            output_features=interactive_model._features,
            metric_fns=metric_fns,
        )
    return seqio.get_mixture_or_task(task_name)


_DATA = {
    "use_cached": "%USE_CACHED_TASKS",
    "batch_size": "%BATCH_SIZE",
    "shuffle": False,
    "seed": 0,
    "pack": False,
}
_UNPACKED = """
DROPOUT_RATE = 0.0
train/utils.DatasetConfig.pack = False
train_eval/utils.DatasetConfig.pack = False
"""
_EVALUATE_ONLY = """
train_script.train:
  run_eval_before_training = True
  eval_period = 0
  total_steps = 0
"""
_INFER_BEGINNING = ("include 't5x/configs/runs/infer.gin'",)
_TRAIN_BEGINNING = (
    "from __gin__ import dynamic_registration",
    "import __main__ as train_script",
    "from t5x import utils",
    "include 't5x/configs/runs/pretrain.gin'",
)


def get_gin_config_from_interactive_model(
    interactive_model: InteractiveModel,
    script_type: T5XScriptType,
    task_name: str,
    partitioner_config_str: str,
    model_config_str: str,
    train_steps: int = 1,
    imports_str: str = "",
) -> str:
    """Writes the gin config of a script that does the same; all scripts but inference are ``t5x.train``.

    ``partitioner_config_str`` has gin lines that configure the partitioner, ``model_config_str`` lines that define
    ``MODEL``, and ``imports_str`` the imports that these two need.

    Raises:
        ValueError: inference is requested for a model that was not restored from a checkpoint.
    """
    restore, save = interactive_model._restore_checkpoint_cfg, interactive_model._save_checkpoint_cfg
    infers = script_type is T5XScriptType.INFERENCE
    if infers and not restore:
        raise ValueError("A checkpoint must be provided to run inference.")

    def block(name: str, **bindings: Any) -> list[str]:
        return [f"{name}:", *(f"  {key} = {value}" for key, value in bindings.items())]

    lines = [
        *(_INFER_BEGINNING if infers else _TRAIN_BEGINNING),
        imports_str,
        f'MODEL_DIR = "{interactive_model._output_dir}"',
        f'MIXTURE_OR_TASK_NAME = "{task_name}"',
        f"TASK_FEATURE_LENGTHS = {interactive_model._task_feature_lengths}",
        "USE_CACHED_TASKS = False",
        "SHUFFLE_TRAIN_EXAMPLES = False",
        f"BATCH_SIZE = {interactive_model._batch_size}",
        model_config_str,
        partitioner_config_str,
    ]
    if restore:
        lines.append(f"CHECKPOINT_PATH = '{restore.path}'")
        bindings = {"path": "%CHECKPOINT_PATH", "mode": repr(restore.mode), "dtype": f"'{restore.dtype}'"}
        lines += block("utils.RestoreCheckpointConfig", **bindings)
    if infers:
        return "\n".join([*lines, "INFER_OUTPUT_DIR = %MODEL_DIR", *block("utils.DatasetConfig", **_DATA), ""])
    lines += block(
        "utils.SaveCheckpointConfig",
        period=save.period,
        dtype=f"'{save.dtype}'",
        keep=save.keep,
        save_dataset=save.save_dataset,
    )
    lines += [f"TRAIN_STEPS = {train_steps}", _UNPACKED]
    return "\n".join([*lines, _EVALUATE_ONLY] if script_type is T5XScriptType.EVALUATION else lines)
