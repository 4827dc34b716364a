"""Metric functions as SeqIO calls them: ``(targets, predictions) -> {name: value}``, with values in percent."""

import collections
import re
import string
from collections.abc import Mapping, Sequence

import sacrebleu


def bleu(targets: Sequence[str], predictions: Sequence[str]) -> Mapping[str, float]:
    """Computes the corpus BLEU of sacrebleu, with its international tokenizer."""
    score = sacrebleu.corpus_bleu(list(predictions), [list(targets)], tokenize="intl")
    return {"bleu": score.score}


def accuracy(targets: Sequence[object], predictions: Sequence[object]) -> Mapping[str, float]:
    """Computes the share of predictions that equal their targets."""
    return {"accuracy": _percent([t == p for t, p in zip(targets, predictions, strict=True)])}


def squad(targets: Sequence[Sequence[str]], predictions: Sequence[str]) -> Mapping[str, float]:
    """Computes the exact match and token F1 of SQuAD v1.1, each against the best-matching answer.

    Args:
      targets: the accepted answers of each question.
      predictions: one answer for each question.
    """
    exact, f1 = [], []
    for answers, prediction in zip(targets, predictions, strict=True):
        words = _words(prediction)
        exact.append(max(float(_words(a) == words) for a in answers))
        f1.append(max(_f1(_words(a), words) for a in answers))
    return {"em": _percent(exact), "f1": _percent(f1)}


def _words(text: str) -> list[str]:
    """Returns the words of an answer in lower case, without punctuation and English articles."""
    bare = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


def _f1(expected: list[str], actual: list[str]) -> float:
    common = sum((collections.Counter(expected) & collections.Counter(actual)).values())
    return 2 * common / (len(expected) + len(actual)) if common else 0.0


def _percent(values: Sequence[float]) -> float:
    return 100.0 * sum(values) / len(values) if values else 0.0
