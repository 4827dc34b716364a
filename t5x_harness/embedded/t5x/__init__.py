"""The embedded T5X runtime: T5X's public interface on today's JAX, Flax, optax, orbax, clu and SeqIO."""

__version__ = "0.1.0+embedded"
