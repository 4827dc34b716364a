"""The sizes of a model that a config binds, by the names that models give them."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.gin.config import BindingKey, GinConfig

# The names under which models keep their sizes: T5X's examples, flaxformer's macros, and the usual others.
HEADS = frozenset({"num_heads", "n_heads", "num_attention_heads"})
KV_HEADS = frozenset({"num_kv_heads", "num_key_value_heads", "n_kv_heads"})
HEAD_DIM = frozenset({"head_dim", "d_kv", "kv_dim", "key_dim"})
WIDTH = frozenset({"emb_dim", "embed_dim", "embedding_dim", "d_model", "hidden_size", "model_dim"})
MLP = frozenset({"mlp_dim", "d_ff", "intermediate_dim", "intermediate_size", "ffn_dim", "mlp_size"})
LAYERS = frozenset({"num_layers", "n_layers", "num_encoder_layers", "num_decoder_layers", "num_hidden_layers"})
EMBEDDING_ROWS = frozenset({"vocab_size", "num_embeddings"})


def bound_integers(config: GinConfig, names: frozenset[str]) -> Iterator[tuple[BindingKey, int]]:
    """Yields each literal integer that is bound to a parameter or macro of one of these names, once.

    Args:
      config: the parsed config.
      names: the names in lower case.
    """
    seen = set()
    for key in config:
        name = key.scope.split("/")[-1] if key.is_macro else key.parameter
        owner = config.owner(key)
        value = config.value(owner)
        if name.lower() in names and owner not in seen and isinstance(value, int) and not isinstance(value, bool):
            seen.add(owner)
            yield owner, value
