"""Gin configurables with the names and parameters of T5X's, for tests of what only reads and writes bindings."""

from __future__ import annotations

from typing import Any

import gin


@gin.register(module="__main__")
def train(
    total_steps: Any = None,
    eval_steps: Any = None,
    eval_period: Any = None,
    stats_period: Any = None,
    relative_steps: Any = None,
    random_seed: Any = None,
    use_hardware_rng: Any = False,
    train_dataset_cfg: Any = None,
    train_eval_dataset_cfg: Any = None,
) -> None:
    """The entry point."""


@gin.register(module="small")
def SaveCheckpointConfig(period: Any = None, checkpoint_steps: Any = None) -> None:
    """What is saved and when."""


@gin.register(module="small")
def DatasetConfig(batch_size: Any = None, task_feature_lengths: Any = None, seed: Any = None) -> None:
    """A dataset."""


@gin.register(module="small")
def Trainer(num_microbatches: Any = None) -> None:
    """The trainer."""


@gin.register(module="small")
def network(
    num_heads: Any = None,
    head_dim: Any = None,
    emb_dim: Any = None,
    mlp_dim: Any = None,
    num_layers: Any = None,
    vocab_size: Any = None,
    dropout_rate: Any = None,
) -> None:
    """A model's sizes."""


@gin.register(module="small")
def warmup_cosine(warmup_steps: Any = None, decay_steps: Any = None) -> None:
    """A schedule that reads the train steps."""


@gin.register(module="small")
def constant_schedule(warmup_steps: Any = None) -> None:
    """A schedule that does not."""
