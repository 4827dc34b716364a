"""Imports everything heavy that a run needs, once, so that forked runs share it; touches no device.

A zygote imports this module and forks afterwards. A T5X process spends most of its time before the first step on
importing TensorFlow, JAX and T5X, so a fork starts at the point that a fresh interpreter reaches after several seconds.
The harness's own stages, and the modules that libraries import only when first used, are loaded here for the same
reason.
"""

# ruff: noqa: F401 - what is imported here is for the forks

import contextlib
import importlib

import clu.data
import clu.metric_writers
import flax.linen
import gin
import jax
import numpy
import optax
import orbax.checkpoint
import seqio
import t5x.adafactor
import t5x.checkpoints
import t5x.eval
import t5x.examples.t5.network
import t5x.gin_utils
import t5x.infer
import t5x.models
import t5x.partitioning
import t5x.train
import t5x.trainer
import t5x.utils
import tensorboard.summary
import tensorflow

import t5x_harness.execute.prepare
import t5x_harness.execute.stages
import t5x_harness.standins.run
from t5x_harness.upstream.autograph import keep_conversions

LATER = (
    "fiddle.absl_flags",
    "jaxlib.mlir.dialects.mhlo",
    "regex",
    "sacrebleu",
    "t5x_harness.standins.tfds",
    "tensorflow.python.data.ops.cache_op",
    "tensorflow.python.data.ops.filter_op",
    "tensorflow.python.data.ops.flat_map_op",
    "tensorflow.python.data.ops.from_generator_op",
    "tensorflow.python.data.ops.from_tensors_op",
    "tensorflow.python.data.ops.interleave_op",
    "tensorflow.python.data.ops.padded_batch_op",
    "tensorflow.python.data.ops.range_op",
    "tensorflow.python.data.ops.shard_op",
    "tensorflow.python.data.ops.skip_op",
    "tensorflow.python.data.ops.take_op",
    "tensorflow.python.data.ops.unbatch_op",
    "tensorflow.python.data.ops.zip_op",
    "tensorflow_datasets.core.reader",
    "tree",
)
"""Modules that libraries, and the metrics of most tasks, import when first used; some may not be installed."""

for _name in LATER:
    with contextlib.suppress(ImportError):
        importlib.import_module(_name)

keep_conversions()
