"""Generated model outputs have the shapes of real ones, from the best to the worst."""

from __future__ import annotations

import numpy as np
import seqio

from t5x_harness.resolve.early_metrics import GeneratedOutputs, generated_outputs

TARGETS = [np.array([5, 6, 1]), np.array([7, 1]), np.array([], np.int32)]


def of(word: str, vocabulary: seqio.Vocabulary) -> GeneratedOutputs:
    (found,) = (outputs for outputs in generated_outputs(TARGETS, vocabulary) if word in outputs.words)
    return found


def test_the_best_are_the_targets() -> None:
    best = of("targets themselves", seqio.ByteVocabulary())
    np.testing.assert_array_equal(best.tokens, [[5, 6, 1], [7, 1, 0], [0, 0, 0]])
    assert best.tokens.dtype == np.int32
    assert best.scores.shape == (3,)
    assert (best.scores <= 0).all()


def test_random_ids_are_of_the_vocabulary_and_the_same_each_time() -> None:
    vocabulary = seqio.ByteVocabulary()
    random = of("random", vocabulary)
    assert random.tokens.shape == (3, 16)
    assert random.tokens.min() >= 0
    assert random.tokens.max() < vocabulary.vocab_size
    np.testing.assert_array_equal(random.tokens, of("random", vocabulary).tokens)
    assert isinstance(vocabulary.decode(random.tokens[0].tolist()), str)


def test_one_prediction_is_empty() -> None:
    vocabulary = seqio.ByteVocabulary()
    texts = [vocabulary.decode(row.tolist()) for row in of("empty prediction for the first", vocabulary).tokens]
    assert texts == ["", vocabulary.decode([7]), ""]


def test_all_predictions_are_empty() -> None:
    vocabulary = seqio.ByteVocabulary()
    tokens = of("empty prediction for every", vocabulary).tokens
    assert [vocabulary.decode(row.tolist()) for row in tokens] == ["", "", ""]


def test_one_prediction_is_unknown_where_the_vocabulary_has_an_unknown_token() -> None:
    unknown = of("unknown", seqio.ByteVocabulary())
    np.testing.assert_array_equal(unknown.tokens[0], [2, 2, 2, 2])
    np.testing.assert_array_equal(unknown.tokens[1], [7, 1, 0, 0])
    assert not any(
        "unknown" in outputs.words for outputs in generated_outputs(TARGETS, seqio.PassThroughVocabulary(100))
    )


def test_what_an_evaluator_gets() -> None:
    best = of("targets themselves", seqio.ByteVocabulary())
    assert [index for index, _ in best.predict(None)] == [0, 1, 2]
    assert [float(score) for _, score in best.score(None)] == best.scores.tolist()
    predictions, aux = best.predict_with_aux(None)
    assert len(predictions) == len(aux["scores"]) == 3
