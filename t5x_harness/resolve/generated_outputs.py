"""Model outputs generated for examples, so that metrics can be called before there is a model.

They have the shapes and dtypes that T5X's models give SeqIO's evaluator: the token ids of all examples as one array
that is padded with zeros, a score for each example, and both together for a metric that asks for both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import seqio

MOST_OUTPUTS = 5
"""How many outputs are generated at most."""

_LENGTH = 16
"""How many tokens a random prediction has at least."""


@dataclasses.dataclass(frozen=True)
class GeneratedOutputs:
    """What a model could have predicted for a few examples.

    Attributes:
      words: what it is, in words that follow ``given``.
      tokens: int32 ids of shape [examples, length].
      scores: float32 log-likelihoods of shape [examples].
    """

    words: str
    tokens: np.ndarray[Any, Any]
    scores: np.ndarray[Any, Any]

    def predict(self, _dataset: Any) -> list[tuple[int, Any]]:
        """Stands in for the model's ``predict_batch``."""
        return list(enumerate(self.tokens))

    def predict_with_aux(self, _dataset: Any) -> tuple[list[tuple[int, Any]], dict[str, Any]]:
        """Stands in for the model's ``predict_batch_with_aux``."""
        return self.predict(_dataset), {"scores": list(self.scores)}

    def score(self, _dataset: Any) -> list[tuple[int, Any]]:
        """Stands in for the model's ``score_batch``."""
        return list(enumerate(self.scores))


def generated_outputs(
    targets: Sequence[np.ndarray[Any, Any]], vocabulary: seqio.Vocabulary
) -> Iterator[GeneratedOutputs]:
    """Yields outputs, from the best that a model can give to those of an untrained one.

    Args:
      targets: ids of the targets, of shape [length] each.
      vocabulary: the vocabulary of the targets.
    """
    random = np.random.default_rng(0)
    number = len(targets)
    scores = -random.exponential(10.0, number).astype(np.float32)
    own = _padded(targets)
    yield GeneratedOutputs("the targets themselves as predictions", own, scores)
    length = max(own.shape[1], _LENGTH)
    ids = random.integers(0, max(vocabulary.vocab_size or 2, 2), (number, length), dtype=np.int32)
    yield GeneratedOutputs("random ids as predictions, as an untrained model gives them", ids, scores)
    empty = np.full(1, getattr(vocabulary, "eos_id", None) or 0)
    yield GeneratedOutputs("an empty prediction for the first example", _padded([empty, *targets[1:]]), scores)
    yield GeneratedOutputs("an empty prediction for every example", _padded([empty] * number), scores)
    unknown = getattr(vocabulary, "unk_id", None)
    if unknown is not None and unknown >= 0:
        tokens = _padded([np.full(4, unknown), *targets[1:]])
        yield GeneratedOutputs("a prediction of unknown tokens for the first example", tokens, scores)


def _padded(rows: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Makes one array of rows of ids; it has at least one column."""
    padded = np.zeros((len(rows), max(1, *map(len, rows))), np.int32)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded
