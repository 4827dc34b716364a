"""Everything heavy that a run needs, imported once so that forked runs share it; touches no device.

A zygote imports :mod:`~t5x_harness.execute.preload_inputs`, then this module, and forks afterwards.  Importing
tensorflow, jax and T5X is most of what a T5X process spends before its first step, so a fork starts where a fresh
interpreter would be after several seconds.  The harness's own stages and what libraries import only at their first use
are here for the same reason, and so is what AutoGraph makes of SeqIO's functions.
"""

from __future__ import annotations

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

import t5x_harness.execute.evaluate
import t5x_harness.execute.infer
import t5x_harness.execute.prepare
import t5x_harness.execute.session
import t5x_harness.execute.train
import t5x_harness.plan.stage
import t5x_harness.resolve.stage
import t5x_harness.standins.run
from t5x_harness.execute.preload_inputs import CONVERSIONS
from t5x_harness.upstream.autograph import T5X_FUNCTIONS, convert

MODULES = (
    clu.data,
    clu.metric_writers,
    flax.linen,
    gin,
    jax,
    numpy,
    optax,
    orbax.checkpoint,
    seqio,
    t5x.adafactor,
    t5x.checkpoints,
    t5x.eval,
    t5x.examples.t5.network,
    t5x.gin_utils,
    t5x.infer,
    t5x.models,
    t5x.partitioning,
    t5x.train,
    t5x.trainer,
    t5x.utils,
    tensorboard.summary,
    tensorflow,
    t5x_harness.execute.evaluate,
    t5x_harness.execute.infer,
    t5x_harness.execute.prepare,
    t5x_harness.execute.session,
    t5x_harness.execute.train,
    t5x_harness.plan.stage,
    t5x_harness.resolve.stage,
    t5x_harness.standins.run,
)
"""What is now in memory."""

LATER = (
    "jaxlib.mlir.dialects.mhlo",
    "regex",
    "sacrebleu",
    "t5x_harness.plan.decoding",
    "t5x_harness.standins.tfds_examples",
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
"""What libraries, and the metrics of most tasks, import only when they are first used, where it is there at all."""

for _name in LATER:
    with contextlib.suppress(ImportError):
        importlib.import_module(_name)

CONVERTED = CONVERSIONS.take() + convert(T5X_FUNCTIONS)
"""How many functions runs need not convert."""
