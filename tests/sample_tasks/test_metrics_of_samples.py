"""Metrics of the sample tasks, against values worked out by hand."""

from __future__ import annotations

import pytest

from t5x_harness.sample_tasks import metrics
from t5x_harness.sample_tasks.translation import number_pairs


def test_squad_ignores_case_articles_and_punctuation() -> None:
    assert metrics.squad([["the Caspian Sea"]], ["Caspian sea."]) == {"em": 100.0, "f1": 100.0}


def test_squad_takes_the_answer_that_fits_best() -> None:
    # against "3530 km" two of four tokens are shared words: 2 * 1 / (2 + 1)
    scores = metrics.squad([["3530 km", "about 3530 km"], ["Kazan"]], ["3530", "Vienna"])
    assert scores["em"] == 0.0
    assert scores["f1"] == pytest.approx(100 * (2 / 3) / 2)


def test_accuracy_counts_equal_pairs() -> None:
    assert metrics.accuracy([1, 2, 3, 4], [1, 0, 3, 0]) == {"accuracy": 50.0}


def test_bleu_is_full_for_the_reference_itself() -> None:
    text = ["the river flows into the sea", "it rises in the mountains here"]
    assert metrics.bleu(text, text)["bleu"] == pytest.approx(100.0)
    assert metrics.bleu(text, ["a b c d", "e f g h"])["bleu"] < 5.0


def test_metrics_of_nothing_are_zero() -> None:
    assert metrics.accuracy([], []) == {"accuracy": 0.0}


def test_bleu_can_tell_translations_of_the_sample_apart() -> None:
    """Of the few examples that a shrunk run reads: with fewer than four words each, BLEU would always be zero."""
    few = [row["english"].decode() for row in number_pairs("validation").take(8).as_numpy_iterator()]
    assert metrics.bleu(few, few)["bleu"] == pytest.approx(100.0)
