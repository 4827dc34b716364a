"""Says how two vocabularies differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from t5x._lazy import seqio

_TOKEN_PROPERTIES = ("extra_ids", "vocab_size", "pad_id", "bos_id", "eos_id", "unk_id")


def difference(a_name: str, a: seqio.Vocabulary, b_name: str, b: seqio.Vocabulary) -> str:
    """Lists the differences between two unequal vocabularies, one line per property."""
    a_facts, b_facts = _facts(a), _facts(b)
    rows = [
        f"    {key}: {a_facts.get(key, '(has none)')} != {b_facts.get(key, '(has none)')}"
        for key in dict.fromkeys((*a_facts, *b_facts))
        if a_facts.get(key) != b_facts.get(key)
    ]
    if not rows:
        rows = [
            f"    both are {a_facts['class']} with the same settings, but two objects that do not compare equal: "
            "define __eq__ or share one object"
        ]
    return "\n".join((f"  {a_name} != {b_name}", *rows))


def _facts(vocabulary: seqio.Vocabulary) -> Mapping[str, str]:
    """Describes a vocabulary so that a reader recognizes it; never gives an object's address."""
    facts = {"class": type(vocabulary).__qualname__}
    if isinstance(vocabulary, seqio.SentencePieceVocabulary):
        # These compare by their arguments; reading more would load the model file, perhaps from the cloud.
        return facts | {key.lstrip("_"): _value(value) for key, value in vocabulary.__getstate__().items()}
    for name in _TOKEN_PROPERTIES:
        try:
            facts[name] = str(getattr(vocabulary, name))
        except (NotImplementedError, AttributeError):
            continue
    if isinstance(vocabulary, seqio.PassThroughVocabulary):
        facts["size"] = facts.pop("vocab_size")
    return facts


def _value(value: Any) -> str:
    if value is None or isinstance(value, (str, int, float, bool)):
        return repr(value)
    return " ".join(str(value).split())
