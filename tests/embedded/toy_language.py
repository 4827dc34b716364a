"""A language so small that enumeration shows what a decoder must find.

The next token depends on the last two. The decoder knows the last one; the one before it is in the model's cache, so a
decoder that mixes up the rows of the cache finds something else.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

EOS = 1


@dataclasses.dataclass(frozen=True)
class Language:
    """A language of `size` tokens: 0 is padding and never likely; 1 ends a sentence unless the language is endless."""

    size: int
    seed: int = 0
    endless: bool = False

    @property
    def logits(self) -> np.ndarray:
        """The logits, float32[before, last, next]."""
        logits = np.random.RandomState(self.seed).randn(self.size, self.size, self.size) * 2
        logits[..., 0] = -60
        if self.endless:
            logits[..., EOS] = -60
        return logits.astype(np.float32)

    def log_probs(self, temperature: float = 1.0) -> np.ndarray:
        """Returns the log probabilities, float64[before, last, next]."""
        scaled = self.logits.astype(np.float64) / temperature
        return scaled - np.log(np.exp(scaled).sum(-1, keepdims=True))

    def log_prob(self, sentence: Sequence[int], *, prompt: int = 0, temperature: float = 1.0) -> float:
        """Returns the sum up to the end token, without the first `prompt` tokens."""
        table, before, last, total = self.log_probs(temperature), 0, 0, 0.0
        for i, token in enumerate(sentence):
            if i >= prompt:
                total += table[before, last, token]
                if token == EOS:
                    break
            before, last = last, token
        return total

    def sentences(self, length: int) -> list[tuple[int, ...]]:
        """Returns all sentences of at most `length` tokens that end."""
        words = range(2, self.size)
        return [(*body, EOS) for n in range(length) for body in itertools.product(words, repeat=n)]

    def greedy(self, length: int, prompt: Sequence[int] = ()) -> list[int]:
        """Returns the sentence of the likeliest tokens, padded with zeros."""
        before, last, sentence = 0, 0, []
        for i in range(length):
            token = prompt[i] if i < len(prompt) else int(self.logits[before, last].argmax())
            sentence.append(token)
            if token == EOS and i >= len(prompt):
                break
            before, last = last, token
        return sentence + [0] * (length - len(sentence))

    def cache(self, rows: int) -> dict[str, Any]:
        """Returns the cache before the first token."""
        return {"layer": {"before": jnp.zeros(rows, jnp.int32), "cache_index": jnp.array(0)}}

    def tokens_to_logits(self, state: Any) -> tuple[Any, Any]:
        """Returns logits and the new cache, as decoders call a model."""
        layer, last = state.cache["layer"], state.cur_token[:, 0]
        new_layer = {"before": last, "cache_index": layer["cache_index"] + 1}
        return jnp.asarray(self.logits)[layer["before"], last], {"layer": new_layer}


def as_prompts(*prompts: Sequence[int], length: int) -> np.ndarray:
    """Returns decoder inputs: the start token, the prompt, then zeros; `length` tokens in all."""
    return np.array([[0, *prompt, *[0] * (length - 1 - len(prompt))] for prompt in prompts], np.int32)
