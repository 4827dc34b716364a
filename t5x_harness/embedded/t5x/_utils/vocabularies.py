"""The vocabularies of a task, and whether they are the model's."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import seqio
from t5x._utils.dataset_config import DatasetConfig, get_provider, import_module

if TYPE_CHECKING:
    from t5x import models

_TOKEN_PROPERTIES = ("extra_ids", "vocab_size", "pad_id", "bos_id", "eos_id", "unk_id")


def round_vocab_size_to_multiple(vocabulary: seqio.Vocabulary, divisor: int = 128) -> int:
    """Rounds a vocabulary's size up, for embedding tables that split evenly.

    Args:
        vocabulary: The vocabulary.
        divisor: What the result is a multiple of.
    """
    return -(-vocabulary.vocab_size // divisor) * divisor


def get_vocabulary(cfg: DatasetConfig) -> tuple[seqio.Vocabulary, seqio.Vocabulary]:
    """Finds the vocabularies of a task's or mixture's inputs and targets.

    A task without both features (a language model's) must have one vocabulary for all its features, not counting
    those passed through as they are; it is returned twice.

    Args:
        cfg: Names the task or mixture. Its ``module`` is imported first.

    Returns:
        The vocabulary of the inputs and that of the targets.

    Raises:
        ValueError: The task does not exist, or its features leave it open which vocabulary is meant.
    """
    if cfg.module:
        warnings.warn(
            "`DatasetConfig.module` (MIXTURE_OR_TASK_MODULE) is deprecated: import the module in the Gin file.",
            DeprecationWarning,
            stacklevel=2,
        )
        import_module(cfg.module)
    provider = get_provider(cfg)
    features = provider.output_features
    if "inputs" in features and "targets" in features:
        return features["inputs"].vocabulary, features["targets"].vocabulary

    named = {name: feature.vocabulary for name, feature in features.items()}
    if not named:
        raise ValueError(f"{provider.name!r} has no vocabulary: it has no output features.")
    tokenizing = {name: v for name, v in named.items() if not isinstance(v, seqio.PassThroughVocabulary)}
    candidates = tokenizing or named
    first_name, first = next(iter(candidates.items()))
    for name, vocabulary in candidates.items():
        if vocabulary != first:
            raise ValueError(
                f"{provider.name!r} does not have both 'inputs' and 'targets', so all its features must share one "
                f"vocabulary, but they are different:\n{_difference(first_name, first, name, vocabulary)}"
            )
    return first, first


def verify_matching_vocabs(cfg: DatasetConfig, model: models.BaseTransformerModel) -> None:
    """Checks that a task tokenizes as the model expects.

    Args:
        cfg: Names the task or mixture.
        model: Anything with ``input_vocabulary`` and ``output_vocabulary``.

    Raises:
        ValueError: A vocabulary of the task is not equal to the model's. The text lists what differs.
    """
    inputs, targets = get_vocabulary(cfg)
    differences = []
    for task_name, of_task, model_name, of_model in (
        ("task inputs", inputs, "model.input_vocabulary", model.input_vocabulary),
        ("task targets", targets, "model.output_vocabulary", model.output_vocabulary),
    ):
        if of_task != of_model:
            differences.append(_difference(task_name, of_task, model_name, of_model))
    if differences:
        listed = "\n".join(dict.fromkeys(differences))
        raise ValueError(
            f"Model and Task vocabularies do not match for {get_provider(cfg).name!r}:\n{listed}\n"
            "Bind the model's vocabulary (VOCABULARY in most configs) to the task's, or choose a task made for it."
        )


def _difference(a_name: str, a: seqio.Vocabulary, b_name: str, b: seqio.Vocabulary) -> str:
    """Lists what differs between two unequal vocabularies, a line for each property."""
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
    """What a reader can tell a vocabulary by, in words; never an object's address."""
    facts = {"class": type(vocabulary).__qualname__}
    if isinstance(vocabulary, seqio.SentencePieceVocabulary):
        # These compare by how they were made; asking for more would load the model file, perhaps from the cloud.
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
