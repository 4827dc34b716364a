"""The embedded T5X runtime: T5X's public interface on today's JAX, Flax, optax, orbax, clu and SeqIO.

T5X and SeqIO: Roberts et al. 2022, arXiv:2203.17189. ``TOUR.md`` beside this file follows one training step.
"""

__version__ = "0.1.0+embedded"
