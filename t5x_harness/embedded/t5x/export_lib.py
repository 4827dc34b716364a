"""A model as a TensorFlow SavedModel: text in, text or scores out, the model in between converted by jax2tf.

The converted program is XLA's, in the version of the JAX that wrote it. A TensorFlow that is older than this JAX saves
it all the same, but may not run all of it: decoding by ``jax.lax.top_k``, that is beam search, needs a newer one.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.core
import jax
import jax.numpy as jnp
import numpy as np
import seqio
import tensorflow as tf
from absl import logging
from flax import traverse_util
from jax.experimental import jax2tf
from t5x import checkpoints, decoding, models, partitioning, utils
from t5x._absent import name_getter

__getattr__ = name_getter(__name__)
PyTree = Any
DecoderParamsSpec = Sequence[tuple[str, tf.DType, Sequence[int]]]
PreprocessorFn = Callable[..., Mapping[str, tf.Tensor]]
PostprocessorFn = Callable[[Any], Any]
InferenceFn = Callable[[Mapping[str, Any], Any], PyTree]
CreatePreprocessorFn = Callable[..., Any]
CreatePostprocessorFn = Callable[..., PostprocessorFn]
CreateDecodingStateCallbackFn = Callable[..., decoding.StateCallbackFn]
WarmupExample = str | bytes | list[int]
WarmupExamples = list[WarmupExample]


@dataclasses.dataclass
class CustomInferenceMode:
    """A method of the model to export besides the two that have names; it takes parameters and a batch.

    Attributes:
        fetch_output: picks the part of its result to return.
        model_fn_const_kwargs: further arguments of the method.
    """

    model_fn_name: str
    fetch_output: Callable[[PyTree], PyTree] | None = None
    model_fn_const_kwargs: Mapping[str, Any] | None = None


# The method and the number of results of each named mode.
_MODES = {"predict": ("predict_batch_with_aux", 2), "score": ("score_batch", 1)}


class ExportableModule(tf.Module):
    """The saved module: the parameters, and the functions from a batch of texts to the model's results.

    The three functions map inputs to the model's features, parameters and features to results, and
    results to outputs. ``use_gpu`` keeps the parameters on a GPU. ``use_batch_function`` gathers requests into batches
    by ``tf.nondifferentiable_batch_function``, which describes the other arguments.

    Args:
        batch_size: examples in a batch; None for any number.
        batch_timeout_micros: how long a batch waits to be filled, in microseconds.
        allowed_batch_sizes: the sizes to which batches are padded.
        jit_compile: whether TensorFlow compiles the model.
        enable_large_batch_splitting: divide larger requests.
    """

    def __init__(
        self,
        preproc_tf_fn: PreprocessorFn,
        model_tf_fn: Callable[..., Any],
        postproc_tf_fn: PostprocessorFn,
        params: Mapping[str, Any],
        batch_size: int | None,
        num_batch_threads: int = 8,
        max_enqueued_batches: int = 64,
        batch_timeout_micros: int = 1000_000,
        max_batch_size: int | None = None,
        allowed_batch_sizes: Sequence[int] | None = None,
        jit_compile: bool = True,
        use_batch_function: bool = False,
        use_gpu: bool = False,
        enable_large_batch_splitting: bool = True,
    ):
        super().__init__()
        with tf.device(tf.config.list_logical_devices("GPU")[0] if use_gpu else None):
            variables = {
                path: tf.Variable(np.asarray(value), trainable=False, name="__".join(path))
                for path, value in traverse_util.flatten_dict(flax.core.unfreeze(params)).items()
            }
        self._variables = list(variables.values())
        tree = flax.core.freeze(traverse_util.unflatten_dict(variables))
        self._model_tf_fn = tf.function(
            lambda features: model_tf_fn(tree, features), autograph=False, jit_compile=jit_compile
        )
        self._preproc_tf_fn = preproc_tf_fn
        self._postproc_tf_fn = postproc_tf_fn
        # TensorFlow saves tables and other resources that are attributes.
        self._resources = [getattr(fn, "trackable_resources", []) for fn in (preproc_tf_fn, postproc_tf_fn)]
        self._batch_size = batch_size
        self._allowed_batch_sizes = allowed_batch_sizes
        self._max_batch_size = max_batch_size
        self._batching: dict[str, Any] | None = None
        if use_batch_function:
            self._batching = {
                "num_batch_threads": num_batch_threads,
                "max_enqueued_batches": max_enqueued_batches,
                "batch_timeout_micros": batch_timeout_micros,
                "enable_large_batch_splitting": enable_large_batch_splitting,
            }

    @functools.partial(tf.function, autograph=False, jit_compile=False)
    def __call__(self, *input_batches: Any) -> Any:
        """Maps a batch of inputs to outputs."""
        if self._batching is None:
            return self._call(*input_batches)
        if self._allowed_batch_sizes and self._batch_size is not None:
            raise ValueError("allowed_batch_sizes requires polymorphic batch size: set batch_size to None")
        if not self._allowed_batch_sizes and self._batch_size is None:
            raise ValueError("Need to set either batch_size or allowed_batch_sizes when using batch_function.")
        sizes = [size for size in self.export_batch_sizes if size]
        gather = tf.nondifferentiable_batch_function(
            max_batch_size=self._max_batch_size or max(sizes), allowed_batch_sizes=sizes, **self._batching
        )
        flat, structure = jax.tree.flatten(input_batches)
        return gather(lambda *leaves: self._call(*jax.tree.unflatten(structure, leaves)))(*flat)

    def _call(self, *input_batches: Any) -> Any:
        return self._postproc_tf_fn(self._model_tf_fn(self._preproc_tf_fn(*input_batches)))

    @property
    def tpu_func(self) -> Any:
        """The part that a TPU would run."""
        return self._model_tf_fn

    @property
    def export_batch_sizes(self) -> Sequence[int | None]:
        """The allowed batch sizes."""
        return self._allowed_batch_sizes or [self._batch_size]

    @tf.function(autograph=False, jit_compile=False)
    def preproc_func(self, *args: Any) -> Any:
        """Converts inputs to the model's features."""
        return self._preproc_tf_fn(*args)


def get_train_state_initializer(
    model: models.BaseTransformerModel,
    partitioner: partitioning.BasePartitioner,
    task_feature_lengths: Mapping[str, int],
    batch_size: int | None,
    trailing_shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> utils.TrainStateInitializer | None:
    """Makes the initializer, which knows shapes and axes of the parameters; None without a partitioner.

    A ``batch_size`` of None means the smallest allowed one. ``trailing_shapes`` has, by model feature, the dimensions
    after batch and length.

    Raises:
        ValueError: if a feature has more dimensions and no trailing shape.
    """
    if not partitioner:
        return None
    converter = model.FEATURE_CONVERTER_CLS(pack=False)
    rows = partitioner.get_data_layout(batch_size).batch_size
    shapes: dict[str, tuple[int, ...]] = {}
    for name, length in converter.get_model_feature_lengths(task_feature_lengths).items():
        more = (trailing_shapes or {}).get(name)
        if converter.MODEL_FEATURES[name].rank > 1 and more is None:
            raise ValueError(
                f"Must set the trailing shape--`...?` in `(batch_size, seqlen, ...?)`--for higher rank feature {name}"
            )
        shapes[name] = (rows, length, *(more or ()))
    initializer = utils.TrainStateInitializer(
        optimizer_def=None, init_fn=model.get_initial_variables, input_shapes=shapes, partitioner=partitioner
    )
    utils.log_model_info(None, initializer.global_train_state_shape, partitioner)
    return initializer


def flatten(compute_outputs: PyTree, assert_output_len: int | None = None) -> tuple[jax.Array, ...]:
    """Returns the leaves of a tree; raises an AssertionError if their number is not the given one."""
    leaves = tuple(jax.tree.leaves(compute_outputs))
    assert assert_output_len in (None, len(leaves)), f"{len(leaves)} outputs, not {assert_output_len}"
    return leaves


def create_inference_function(
    *,
    model: models.BaseTransformerModel,
    inference_mode: str | CustomInferenceMode,
    partitioner: partitioning.BasePartitioner | None,
    train_state_initializer: utils.TrainStateInitializer | None,
    decoding_state_callback_fn: decoding.StateCallbackFn | None = None,
    enable_jax2tf: bool,
    enable_xla: bool = True,
    polymorphic_shapes_inputs: Any | None = None,
    native_lowering: bool = True,
    native_lowering_platforms: Sequence[str] | None = None,
    model_fn_extra_kwargs: Mapping[str, Any] | None = None,
    jax2tf_disable_platform_checks: bool = False,
    output_len: int | None = None,
) -> InferenceFn:
    """Makes a function of parameters and a batch that predicts, scores, or calls another method of the model.

    Given a partitioner and an initializer, which knows the axes of the parameters, the method is partitioned. The
    decoding callback and ``model_fn_extra_kwargs`` are for predictions only. ``output_len`` is the number of arrays
    that a named mode returns; each mode has a default.

    ``enable_jax2tf`` converts it for TensorFlow, for CPU and TPU unless other platforms are given. If the batch size
    is open, ``polymorphic_shapes_inputs`` has a shape like "b, ..." for each feature. ``native_lowering`` is not used:
    jax2tf lowers natively only.

    Raises:
        ValueError: if the mode has an unknown name.
    """
    if isinstance(inference_mode, str):
        if inference_mode not in _MODES:
            raise ValueError(
                f"`inference_mode` must be a string in {list(_MODES)} or a `CustomInferenceMode`. "
                f"Got inference_mode={inference_mode}."
            )
        method, results = _MODES[inference_mode]
        fetch = functools.partial(flatten, assert_output_len=results if output_len is None else output_len)
        inference_mode = CustomInferenceMode(method, fetch)
    fetch_output = inference_mode.fetch_output or (lambda outputs: outputs)
    constant = dict(inference_mode.model_fn_const_kwargs or {})

    def predict(params: Any, inputs: Mapping[str, Any]) -> Any:
        batch = dict(inputs)
        decoder_params = dict(batch.pop("decoder_params", {}))
        if decoding_state_callback_fn is not None:
            decoder_params["state_callback_fn"] = decoding_state_callback_fn
        given = {"decoder_params": decoder_params} if decoder_params else {}
        return model.predict_batch_with_aux(params, batch, **given, **(model_fn_extra_kwargs or {}), **constant)

    predicts = inference_mode.model_fn_name == _MODES["predict"][0]
    step = predict if predicts else functools.partial(getattr(model, inference_mode.model_fn_name), **constant)
    if partitioner and train_state_initializer:
        data = partitioning.PartitionSpec("data")
        params_axes = train_state_initializer.train_state_axes.params
        step = partitioner.partition(step, in_axis_resources=(params_axes, data), out_axis_resources=data)
    if enable_jax2tf:
        checks = [jax2tf.DisabledSafetyCheck.platform()] if jax2tf_disable_platform_checks else []
        step = jax2tf.convert(
            step,
            polymorphic_shapes=[None, polymorphic_shapes_inputs],
            native_serialization_platforms=native_lowering_platforms or ["cpu", "tpu"],
            native_serialization_disabled_checks=checks,
            **({} if enable_xla else {"enable_xla": False}),  # newer releases of JAX warn that it is deprecated
        )
    return lambda params, batch: fetch_output(step(params, batch))


def load_params_from_checkpoint(
    restore_checkpoint_cfg: utils.RestoreCheckpointConfig,
    train_state_initializer: utils.TrainStateInitializer | None,
    partitioner: partitioning.BasePartitioner,
) -> Mapping[str, Any]:
    """Reads the parameters of one checkpoint.

    Raises:
        ValueError: if the config names none, or several.
        NotImplementedError: if there is no initializer, and the config does not name one checkpoint.
    """
    if train_state_initializer is None:
        cfg = restore_checkpoint_cfg
        if cfg.mode != "specific" or not isinstance(cfg.path, str):
            raise NotImplementedError("Only mode='specific' is currently supported, with a path that is a string")
        read = checkpoints.load_t5x_checkpoint(
            cfg.path, state_transformation_fns=cfg.state_transformation_fns, restore_dtype=jnp.dtype(cfg.dtype)
        )
        return flax.core.freeze(read["target"])
    found, paths = utils.get_first_valid_restore_config_and_paths([restore_checkpoint_cfg])
    if len(paths) != 1:
        raise ValueError(f"Expected only 1 checkpoint but got {len(paths)} for config(s): {found}")
    state, _ = utils.create_checkpoint_manager_and_restore(
        train_state_initializer, partitioner, found, paths[0], jax.random.PRNGKey(0), use_orbax=True
    )
    return state.params


def create_single_tensor_input_signature(
    batch_size: int | None,
    task_feature_lengths: Mapping[str, int],
    tokenized_inputs: bool = False,
    name: str = "text_batch",
) -> Sequence[tf.TensorSpec]:
    """Returns the signature of one input: texts [batch], or tokens [batch, length of the inputs]."""
    if not tokenized_inputs:
        return (tf.TensorSpec([batch_size], tf.string, name=name),)
    return (tf.TensorSpec([batch_size, task_feature_lengths["inputs"]], tf.int32, name=name),)


def truncate_and_pad_tokenized_input(
    input_tensor: tf.Tensor, max_length: int, allowed_lengths: list[int] | None = None
) -> tf.Tensor:
    """Cuts or pads int32[tokens] to ``max_length``, or pads to the shortest of ``allowed_lengths`` that is long enough.

    Raises:
        ValueError: if the longest of ``allowed_lengths`` is not ``max_length``.
    """
    length: Any = max_length
    if allowed_lengths:
        buckets = sorted(allowed_lengths)
        if buckets[-1] != max_length:
            raise ValueError(
                "Expected the largest allowed length to be the same as the task feature length "
                f"{max_length}, but got {buckets[-1]}."
            )
        fitting = tf.searchsorted(buckets, [tf.shape(input_tensor)[0]])[0]
        length = tf.constant(buckets)[tf.minimum(fitting, len(buckets) - 1)]
    cut = input_tensor[:length]
    padded = tf.pad(cut, [[0, length - tf.shape(cut)[0]]])
    return padded if allowed_lengths else tf.ensure_shape(padded, [max_length])


def create_preprocessor(
    batch_size: int | None,
    output_features: Mapping[str, seqio.Feature],
    task_feature_lengths: Mapping[str, int],
    tokenized_inputs: bool = False,
    *,
    input_tensor_name: str = "text_batch",
    split_separator: str | None = None,
    bucket_keys: Mapping[str, list[int]] | None = None,
) -> tuple[PreprocessorFn, Sequence[tf.TensorSpec]]:
    """Makes a function from a batch of texts or tokens to the features of an encoder-decoder, and its signature.

    ``output_features`` has "inputs" and "targets", with their vocabularies, which are cut or padded to
    ``task_feature_lengths``, or to one of the lengths in ``bucket_keys``. For scores, ``split_separator`` divides a
    text into inputs and targets; without it, targets are empty.
    """

    def tokens(text: tf.Tensor, name: str) -> tf.Tensor:
        feature, length = output_features[name], task_feature_lengths[name]
        ids = text if tokenized_inputs else feature.vocabulary.encode_tf(text)
        if feature.add_eos:
            ids = tf.concat([ids[: length - 1], [feature.vocabulary.eos_id]], axis=0)
        return truncate_and_pad_tokenized_input(ids, length, (bucket_keys or {}).get(name))

    def rows(texts: tf.Tensor, name: str) -> tf.Tensor:
        open_length = bool(bucket_keys and name in bucket_keys)
        row = tf.RaggedTensorSpec([None if open_length else task_feature_lengths[name]], tf.int32, ragged_rank=0)
        return tf.map_fn(functools.partial(tokens, name=name), texts, fn_output_signature=row).to_tensor()

    def preprocess(input_texts: tf.Tensor) -> Mapping[str, tf.Tensor]:
        inputs, targets = input_texts, tf.zeros_like(input_texts)  # for texts: empty targets
        if split_separator is not None and not tokenized_inputs:
            parts = tf.strings.split(input_texts, sep=split_separator, maxsplit=1)
            both = parts.to_tensor(shape=[None, 2])
            inputs, targets = both[:, 0], both[:, 1]
        target_tokens = rows(targets, "targets")
        each = functools.partial(tf.map_fn, elems=target_tokens)
        return {
            "encoder_input_tokens": rows(inputs, "inputs"),
            "decoder_target_tokens": target_tokens,
            "decoder_input_tokens": each(seqio.feature_converters.autoregressive_inputs),
            "decoder_loss_weights": each(seqio.feature_converters.non_padding_position),
        }

    signature = create_single_tensor_input_signature(
        batch_size, task_feature_lengths, tokenized_inputs, input_tensor_name
    )
    return preprocess, signature


def _parsed_features(specs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a task's features in the form that ``tf.io.parse_single_example`` takes."""

    def parsed(name: str, spec: Any) -> Any:
        if isinstance(spec, tf.SparseTensorSpec):
            return tf.io.VarLenFeature(spec.dtype)
        if not isinstance(spec, tf.TensorSpec):
            raise ValueError(
                f'Cannot generate feature description for feature "{name}" with element spec type {type(spec)}; '
                "supported types: tf.SparseTensorSpec, tf.TensorSpec."
            )
        if spec.shape.is_fully_defined():
            return tf.io.FixedLenFeature(spec.shape, spec.dtype, tf.zeros(spec.shape, spec.dtype).numpy())
        if not spec.shape[1:].is_fully_defined():
            raise ValueError(
                f"Except for the first dimension, all dimentions of shape for feature {name} need to be known but "
                f"received {spec.shape!s}."
            )
        return tf.io.FixedLenSequenceFeature(spec.shape[1:], spec.dtype, allow_missing=True)

    return {name: parsed(name, spec) for name, spec in specs.items()}


class PreprocessorFnFromTask:
    """Converts a batch of examples to the model's features as a SeqIO task does.

    A ``batch_size`` of None means any number. ``serialized_examples`` are TFExamples; ``run_precache`` also applies the
    preprocessors before the task's cache.
    """

    def __init__(
        self,
        batch_size: int | None,
        model: models.BaseTransformerModel,
        task_feature_lengths: Mapping[str, int],
        task_name: str = "",
        serialized_examples: bool = True,
        run_precache: bool = False,
    ):
        self.task = seqio.TaskRegistry.get(task_name)
        self.parse_example: Callable[[Any], Any] = lambda example: example
        if serialized_examples:
            features = _parsed_features(self.task.source.get_dataset(self.task.splits[0]).element_spec)
            self.parse_example = functools.partial(tf.io.parse_single_example, features=features)
        self.batch_size = batch_size
        self.run_precache = run_precache
        self.task_feature_lengths = task_feature_lengths
        self.feature_converter = model.FEATURE_CONVERTER_CLS(pack=False)
        resource = tf.saved_model.experimental.TrackableResource
        self.trackable_resources = [
            value
            for preprocessor in self.task.preprocessors
            for _, value in inspect.getmembers(preprocessor, lambda member: isinstance(member, resource))
        ]

    def __call__(self, examples: Any) -> Mapping[str, tf.Tensor]:
        """Converts one batch."""
        dataset = tf.data.Dataset.from_tensor_slices(examples).map(self.parse_example)
        if self.run_precache:
            dataset = self.task.preprocess_precache(dataset)
        dataset = self.task.preprocess_postcache(dataset, self.task_feature_lengths)
        dataset = self.feature_converter(dataset, task_feature_lengths=self.task_feature_lengths)
        rows = self.batch_size
        if rows is None:
            rows = tf.cast(tf.shape(jax.tree.leaves(examples)[0])[0], tf.int64)
        return dataset.batch(rows, drop_remainder=True).get_single_element()


def create_preprocessor_from_task(
    batch_size: int | None,
    output_features: Mapping[str, seqio.Feature],
    task_feature_lengths: Mapping[str, int],
    tokenized_inputs: bool,
    *,
    model: models.BaseTransformerModel,
    task_name: str = "",
    serialized_examples: bool = True,
    run_precache: bool = False,
    input_tensor_name: str = "text_batch",
) -> tuple[PreprocessorFn, Sequence[tf.TensorSpec]]:
    """Makes a ``PreprocessorFnFromTask`` and the signature of its input; ``output_features`` is not used."""
    preprocess = PreprocessorFnFromTask(
        batch_size, model, task_feature_lengths, task_name, serialized_examples, run_precache
    )
    signature = create_single_tensor_input_signature(
        batch_size, task_feature_lengths, tokenized_inputs, input_tensor_name
    )
    return preprocess, signature


def create_postprocessor(
    vocab: seqio.Vocabulary,
    inference_mode: str | CustomInferenceMode,
    decode_outputs: bool = True,
    output_feature_names: list[str] | None = None,
    add_token_length_to_output: bool | None = False,
) -> PostprocessorFn:
    """Makes the function from the model's results to outputs: for "predict", tokens decoded by ``vocab``, and scores.

    Outputs are a dictionary if as many names are given, and a tuple without names.
    ``add_token_length_to_output`` adds to decoded predictions the number of tokens, and of those before the end.
    """

    def named(outputs: Any) -> Any:
        if output_feature_names is None:
            return outputs
        if len(outputs) != len(output_feature_names):
            raise ValueError(f"Output feature names {output_feature_names} must match number of outputs {len(outputs)}")
        return dict(zip(output_feature_names, outputs, strict=True))

    def decoded(results: Any) -> Any:
        tokens, scores = results
        texts = vocab.decode_tf(tokens)
        outputs = (texts.to_tensor() if isinstance(texts, tf.RaggedTensor) else texts, scores)
        if not add_token_length_to_output:
            return named(outputs)
        count = tf.reduce_sum(tf.ones_like(tokens, tf.int32), axis=-1)
        before_end = count
        if vocab.eos_id:
            ends = tf.cumsum(tf.cast(tokens == vocab.eos_id, tf.int32), axis=-1)
            before_end = tf.reduce_sum(tf.cast(ends == 0, tf.int32), axis=-1)
        return named((*outputs, count, before_end))

    return decoded if inference_mode == "predict" and decode_outputs else named


def write_warmup_examples(
    text_batch: WarmupExamples,
    output_dir: str,
    model_name: str,
    signature_name: str,
    *,
    generate_examples_fn: Callable[[], list[WarmupExamples]] | None = None,
    batch_sizes: list[int | None],
    input_tensor_name: str = "text_batch",
    decoder_params_spec: DecoderParamsSpec | None = None,
    request_to_prediction_log: Callable[[Any], Any] | None = None,
    input_tensor_dtype: tf.DType | None = None,
) -> None:
    """Writes the requests with which TensorFlow Serving warms up a model, into ``assets.extra``.

    There is one for each of ``batch_sizes``, to which ``text_batch`` is repeated or cut unless it is None; or one for
    each batch of ``generate_examples_fn``, if that is given. ``decoder_params_spec`` has name, dtype and shape of
    further inputs, which are zeros; ``request_to_prediction_log`` replaces the conversion of a request to a
    way.

    Raises:
        ImportError: if tensorflow-serving-api, which has the messages, is not installed.
    """
    try:
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2
    except ImportError as error:
        raise ImportError(
            f"warmup examples are messages of TensorFlow Serving ({error}): pip install tensorflow-serving-api, or "
            "leave out warmup_examples"
        ) from error

    def log_of(examples: WarmupExamples, batch_size: int | None) -> Any:
        rows = list(itertools.islice(itertools.cycle(examples), batch_size or len(examples)))
        dtype = input_tensor_dtype or (tf.string if isinstance(rows[0], str | bytes) else tf.int32)
        request = predict_pb2.PredictRequest()
        request.model_spec.name = model_name
        request.model_spec.signature_name = signature_name
        request.inputs[input_tensor_name].CopyFrom(tf.make_tensor_proto(rows, dtype=dtype))
        for name, kind, shape in decoder_params_spec or ():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(tf.zeros((len(rows), *shape), kind)))
        if request_to_prediction_log is not None:
            return request_to_prediction_log(request)
        return prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))

    folder = os.path.join(output_dir, "assets.extra")
    tf.io.gfile.makedirs(folder)
    with tf.io.TFRecordWriter(os.path.join(folder, "tf_serving_warmup_requests")) as writer:
        for examples in generate_examples_fn() if generate_examples_fn else [text_batch]:
            for batch_size in batch_sizes:
                writer.write(log_of(examples, batch_size).SerializeToString())


def create_fake_input(signature: Any) -> Any:
    """Returns zeros for a tree of tensor specs: one example if the batch size is open.

    Raises:
        ValueError: if another dimension is open.
    """

    def zeros(spec: tf.TensorSpec) -> tf.Tensor:
        shape = spec.shape.as_list()
        if None in shape[1:]:
            raise ValueError(
                f"Only supports polymorphic batch size at leading dimension, got {spec} in the input signature."
            )
        return tf.zeros([1 if size is None else size for size in shape], spec.dtype)

    return jax.tree.map(zeros, signature)


def create_batch_polymorphic_shapes(
    input_signature: Any,
    preprocessor: PreprocessorFn,
    *,
    create_fake_input_fn: Callable[[Any], Any] = create_fake_input,
    overrides: Mapping[str, Any] | None = None,
) -> Any:
    """Returns jax2tf's shape of each feature, "b, ..." if the batch size is open; None if all shapes are known.

    The features are the results of ``preprocessor`` for fake inputs; ``overrides`` has other shapes, by feature.
    """
    is_open = any(not spec.shape.is_fully_defined() for spec in jax.tree.leaves(input_signature))
    if not is_open and not overrides:
        return None
    features = preprocessor(*create_fake_input_fn(input_signature))
    return jax.tree.map(lambda _: "b, ..." if is_open else None, features) | dict(overrides or {})


def _folders(output_dir: str | Mapping[str, str]) -> dict[str, str]:
    """Returns the output folders by device, with one for "cpu"."""
    if output_dir is None:
        raise ValueError("output_dir is mandatory")
    folders = {"tpu": output_dir} if isinstance(output_dir, str) else dict(output_dir)
    if "cpu" in folders:
        return folders
    for folder in folders.values():
        version = os.path.basename(folder)
        if not version.isdigit():
            raise ValueError(
                "output_dir must be in the form ${BASE}/${VERSION}, where  ${VERSION} is an integer. Got a non-numeric "
                f"version {version}."
            )
    beside = folders.get("tpu", folders.get("gpu"))
    if beside is None:
        raise ValueError('output_dir["gpu"] or output_dir["tpu"] is mandatory')
    return {**folders, "cpu": os.path.join(f"{os.path.dirname(beside)}_cpu", os.path.basename(beside))}


def save(
    *,
    model: models.BaseTransformerModel,
    inference_mode: str | CustomInferenceMode,
    restore_checkpoint_cfg: utils.RestoreCheckpointConfig,
    exportable_module_cls: type[ExportableModule],
    create_preprocessor_fn: CreatePreprocessorFn = create_preprocessor,
    create_inference_function_fn: Callable[..., InferenceFn] = create_inference_function,
    create_postprocessor_fn: CreatePostprocessorFn = create_postprocessor,
    partitioner: partitioning.BasePartitioner | None,
    create_decoding_state_callback_fn: CreateDecodingStateCallbackFn | None = None,
    output_features: Mapping[str, seqio.Feature] | None,
    task_feature_lengths: Mapping[str, int],
    batch_size: int | None,
    output_dir: str | Mapping[str, str],
    model_name: str,
    warmup_examples: WarmupExamples | None = None,
    tokenized_inputs: bool = False,
    write_warmup_example_fn: Callable[..., None] = write_warmup_examples,
    mixture_or_task_name: str | None = None,
    validation_examples: list[Any] | None = None,
    native_lowering: bool = True,
    native_lowering_platforms: Sequence[str] | None = None,
    enable_xla: bool = True,
    decode_outputs: bool | None = None,
    trailing_shapes: Mapping[str, tuple[int, ...]] | None = None,
    output_vocab_feature_name: str | None = "targets",
    signature_name: str = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY,
    create_polymorphic_shapes_fn: Any = create_batch_polymorphic_shapes,
) -> None:
    """Saves a model as a SavedModel for CPUs.

    The functions ``create_..._fn`` make its parts, like this module's, which describe the other arguments; the one
    for the decoding callback gets ``vocab`` and ``call_tf_graph``. Without a partitioner, parameters are read as they
    are. As in the public T5X, ``validation_examples`` is not used.

    ``output_features`` are given, or ``mixture_or_task_name`` has them; ``output_vocab_feature_name`` is the feature
    whose vocabulary decodes predictions, by default for inputs that are texts. ``output_dir`` is the folder by device,
    of which "cpu" is written; or BASE/VERSION, and BASE_cpu/VERSION is written. ``warmup_examples``, for TensorFlow
    Serving, are written beside it.

    Raises:
        ValueError: if the folder, or the output features, are not given in one of the ways above.
    """
    folder = _folders(output_dir)["cpu"]
    if mixture_or_task_name is not None:
        if output_features is not None:
            raise ValueError("Only one of mixture_or_task_name and output_features may be non empty.")
        output_features = seqio.get_mixture_or_task(mixture_or_task_name).output_features
    assert output_features is not None
    vocabulary = output_features[output_vocab_feature_name].vocabulary if output_vocab_feature_name else None
    if "batch_size" in inspect.signature(create_preprocessor_fn).parameters:
        preprocess, signature = create_preprocessor_fn(
            batch_size, output_features, task_feature_lengths, tokenized_inputs
        )
    else:  # the older form, without a signature
        preprocess = create_preprocessor_fn(output_features, task_feature_lengths, tokenized_inputs)
        signature = create_single_tensor_input_signature(batch_size, task_feature_lengths, tokenized_inputs)
    initializer = None
    if partitioner is not None:
        initializer = get_train_state_initializer(model, partitioner, task_feature_lengths, batch_size, trailing_shapes)
    callback = None
    if create_decoding_state_callback_fn is not None:
        callback = create_decoding_state_callback_fn(vocab=vocabulary, call_tf_graph=True)
    infer = create_inference_function_fn(
        model=model,
        inference_mode=inference_mode,
        partitioner=partitioner,
        train_state_initializer=initializer,
        decoding_state_callback_fn=callback,
        enable_jax2tf=True,
        enable_xla=enable_xla,
        polymorphic_shapes_inputs=create_polymorphic_shapes_fn(signature, preprocess),
        native_lowering=True,
        native_lowering_platforms=native_lowering_platforms,
    )
    decode = not tokenized_inputs if decode_outputs is None else decode_outputs
    module = exportable_module_cls(
        preproc_tf_fn=preprocess,
        model_tf_fn=infer,
        postproc_tf_fn=create_postprocessor_fn(vocabulary, inference_mode, decode),
        params=load_params_from_checkpoint(restore_checkpoint_cfg, initializer, partitioner),
        batch_size=batch_size,
    )
    module.preproc_func.get_concrete_function(*signature)
    options = tf.saved_model.SaveOptions(
        experimental_custom_gradients=False, function_aliases={"tpu_func": module.tpu_func}
    )
    served = module.__call__.get_concrete_function(*signature)
    tf.saved_model.save(module, folder, signatures={signature_name: served}, options=options)
    logging.info("The SavedModel is in %s.", folder)
    if warmup_examples:
        if batch_size:
            filler: Any = np.zeros_like(warmup_examples[0]).tolist() if tokenized_inputs else ""
            warmup_examples = (warmup_examples + [filler] * batch_size)[:batch_size]
        write_warmup_example_fn(
            warmup_examples,
            output_dir=folder,
            model_name=model_name,
            batch_sizes=list(module.export_batch_sizes),
            signature_name=signature_name,
        )
