"""How TensorFlow runs input pipelines: they are made to give some tens of examples here."""

from __future__ import annotations

__all__ = ["take_graphs_as_they_are"]


def take_graphs_as_they_are() -> None:
    """Has TensorFlow run the functions of input pipelines in this process without optimising their graphs first.

    Grappler takes half of what an iterator costs to make, for pipelines that here give some tens of examples.
    """
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
