"""Task and model must tokenize alike, and what differs is said in words."""

from __future__ import annotations

import dataclasses
import types

import pytest
import ref_tasks
import seqio
from t5x import utils

BYTES = seqio.ByteVocabulary()
SHORT = {"split": "train", "batch_size": 1, "shuffle": False, "seed": 0}


def cfg_of(features: dict[str, seqio.Vocabulary]) -> utils.DatasetConfig:
    task = seqio.Task(
        "embedded_utils_vocabularies",
        source=seqio.FunctionDataSource(ref_tasks._documents, splits=["train"]),
        preprocessors=[],
        output_features={name: seqio.Feature(vocabulary) for name, vocabulary in features.items()},
    )
    return utils.DatasetConfig(task, {}, **SHORT)


def model_with(inputs: seqio.Vocabulary, outputs: seqio.Vocabulary) -> types.SimpleNamespace:
    return types.SimpleNamespace(input_vocabulary=inputs, output_vocabulary=outputs)


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_inputs_and_targets_may_differ() -> None:
    other = seqio.ByteVocabulary(extra_ids=9)
    cfg = cfg_of({"inputs": BYTES, "targets": other})
    assert utils.get_vocabulary(cfg) == (BYTES, other)
    utils.verify_matching_vocabs(cfg, model_with(seqio.ByteVocabulary(), seqio.ByteVocabulary(9)))


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_lone_features_share_one_vocabulary() -> None:
    assert utils.get_vocabulary(cfg_of({"targets": BYTES})) == (BYTES, BYTES)
    through = seqio.PassThroughVocabulary(5)
    assert utils.get_vocabulary(cfg_of({"a": through, "targets": BYTES, "b": BYTES})) == (BYTES, BYTES)
    assert utils.get_vocabulary(cfg_of({"a": through})) == (through, through)


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_lone_features_with_different_vocabularies_are_refused() -> None:
    with pytest.raises(ValueError, match="they are different") as error:
        utils.get_vocabulary(cfg_of({"targets": BYTES, "aux": seqio.ByteVocabulary(extra_ids=4)}))
    assert str(error.value) == (
        "'embedded_utils_vocabularies' does not have both 'inputs' and 'targets', so all its features must share one "
        "vocabulary, but they are different:\n"
        "  aux != targets\n"
        "    extra_ids: 4 != 0\n"
        "    vocab_size: 263 != 259"
    )


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_no_features_are_refused() -> None:
    with pytest.raises(ValueError, match="'embedded_utils_vocabularies' has no vocabulary: it has no output features"):
        utils.get_vocabulary(cfg_of({}))


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_mismatch_lists_what_differs_and_no_addresses() -> None:
    model = model_with(seqio.SentencePieceVocabulary("gs://bucket/spm.model", extra_ids=100), BYTES)
    with pytest.raises(ValueError, match="do not match") as error:
        utils.verify_matching_vocabs(utils.DatasetConfig("ref_reverse", {}, **SHORT), model)
    text = str(error.value)
    assert text.startswith("Model and Task vocabularies do not match for 'ref_reverse':\n")
    assert "  task inputs != model.input_vocabulary\n    class: ByteVocabulary != SentencePieceVocabulary\n" in text
    assert "sentencepiece_model_file: (has none) != 'gs://bucket/spm.model'" in text
    assert "targets" not in text  # those agree
    assert " object at 0x" not in text
    assert text.endswith(
        "Bind the model's vocabulary (VOCABULARY in most configs) to the task's, or choose a task made for it."
    )


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_mismatch_of_two_models_shows_only_the_setting() -> None:
    task = cfg_of(dict.fromkeys(("inputs", "targets"), seqio.SentencePieceVocabulary("a.model", extra_ids=100)))
    other = seqio.SentencePieceVocabulary("a.model")
    with pytest.raises(ValueError, match="do not match") as error:
        utils.verify_matching_vocabs(task, model_with(other, other))
    assert str(error.value).split("\n")[1:-1] == [
        "  task inputs != model.input_vocabulary",
        "    extra_ids: 100 != 0",
        "  task targets != model.output_vocabulary",
        "    extra_ids: 100 != 0",
    ]


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_equal_looking_vocabularies_without_equality_are_explained() -> None:
    class Mine(seqio.PassThroughVocabulary):
        __eq__ = object.__eq__
        __hash__ = object.__hash__

    task = cfg_of({"inputs": Mine(7), "targets": BYTES})
    with pytest.raises(
        ValueError, match="but two objects that do not compare equal: define __eq__ or share one object"
    ):
        utils.verify_matching_vocabs(task, model_with(Mine(7), BYTES))


@pytest.mark.embedded("it is about the text of an error, or one that T5X does not raise")
def test_module_is_said_to_be_deprecated() -> None:
    cfg = dataclasses.replace(utils.DatasetConfig("ref_reverse", {}, **SHORT), module="ref_tasks")
    with pytest.warns(DeprecationWarning, match="import the module in the Gin file"):
        utils.get_vocabulary(cfg)


@pytest.mark.parametrize(("size", "divisor", "expected"), [(259, 128, 384), (256, 128, 256), (1, 10, 10), (0, 8, 0)])
def test_sizes_are_rounded_up(size: int, divisor: int, expected: int) -> None:
    assert utils.round_vocab_size_to_multiple(seqio.PassThroughVocabulary(size), divisor) == expected
