"""Everything heavy that a run needs, imported once so that forked runs share it; touches no device.

A zygote imports this module and forks afterwards.  Importing tensorflow, jax and T5X is most of what a T5X process
spends before its first step, so a fork starts where a fresh interpreter would be after several seconds.
"""

from __future__ import annotations

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
import tensorflow

__all__ = ["MODULES"]

MODULES = (
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
    tensorflow,
)
"""What is now in memory."""
