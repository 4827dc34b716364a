"""Generated vocabularies: their sizes, their special ids, and that every text comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from t5x_harness.standins.vocabularies import VocabularySize, model_of, size_of

T5 = "gs://t5-data/vocabs/{}/sentencepiece.model"

TEXTS = (
    "translate English to German: The house is wonderful, isn't it?",
    "  two  spaces,\ta tab,\na line feed and a space at the end ",
    "Größe, naïve, ½ \u00a0 e\u0301",
    "日本語 한국어 ไทย עברית عربى हिन्दी",
    "\U0001f600\U0001f469\u200d\U0001f4bb \u202eleft\u202c \x00\x7f",
    "",
)


@pytest.fixture(scope="module")
def seqio():
    return pytest.importorskip("seqio")


@pytest.mark.parametrize(
    ("path", "model", "size"),
    [
        (T5.format("cc_all.32000"), {"rows": 32128, "extra_ids": 100}, VocabularySize(32_000)),
        (T5.format("cc_all.32000.100extra"), {"rows": 32128}, VocabularySize(32_000, 100)),
        (T5.format("mc4.250000.100extra"), {"rows": 250112}, VocabularySize(250_000, 100)),
        (T5.format("umt5.256000"), {"rows": 256384, "extra_ids": 300}, VocabularySize(256_000)),
        ("gs://my-bucket/vocab/sp_64k.model", {"rows": 64128, "extra_ids": 100}, VocabularySize(64_000)),
        ("gs://my-bucket/vocab/sp64k.model", {"rows": 65664, "extra_ids": 100}, VocabularySize(65_536)),
        ("gs://my-bucket/vocab/sp64k.model", {}, VocabularySize(64_000)),
        ("/gcs/my-bucket/en.8192/spm.model", {}, VocabularySize(8192)),
        ("gs://data-32000/runs/2023-01-05/spm.model", {"rows": 32128, "extra_ids": 100}, VocabularySize(32_000)),
        ("gs://my-bucket/spm.model", {"rows": 50304}, VocabularySize(50_300)),
        ("gs://my-bucket/spm.model", {"rows": 256}, VocabularySize(256)),
        ("gs://my-bucket/spm.model", {}, VocabularySize(32_000)),
    ],
)
def test_size_is_what_the_path_says_and_else_what_the_embedding_has_room_for(path, model, size):
    assert size_of(path, **model) == size


def test_special_ids_and_sentinels_are_those_of_t5():
    processor = pytest.importorskip("sentencepiece").SentencePieceProcessor()
    processor.LoadFromSerializedProto(model_of(size_of(T5.format("cc_all.32000.100extra"))))
    assert processor.GetPieceSize() == 32_100
    assert (processor.pad_id(), processor.eos_id(), processor.unk_id(), processor.bos_id()) == (0, 1, 2, -1)
    assert processor.IdToPiece(32_099) == "\u2581<extra_id_0>"
    assert processor.IdToPiece(32_000) == "\u2581<extra_id_99>"
    assert processor.EncodeAsIds("a <extra_id_0> b")[1] == 32_099


@pytest.mark.parametrize("size", [VocabularySize(384), VocabularySize(32_000, 100), VocabularySize(250_000)], ids=str)
def test_every_text_comes_back_in_python_and_in_tensorflow(size, seqio, tmp_path: Path):
    import tensorflow as tf

    (tmp_path / "generated.model").write_bytes(model_of(size))
    vocabulary = seqio.SentencePieceVocabulary(str(tmp_path / "generated.model"))
    assert vocabulary.vocab_size == size.total
    for text in TEXTS:
        ids = vocabulary.encode(text)
        assert vocabulary.decode(ids) == text
        assert vocabulary.encode_tf(text).numpy().tolist() == ids
        # TensorFlow's decoder drops spaces in front, of any model.
        assert vocabulary.decode_tf(tf.constant(ids, tf.int32)).numpy().decode() == text.lstrip(" ")


def test_a_vocabulary_too_small_for_bytes_has_letters_and_says_so_of_the_rest(seqio, tmp_path: Path):
    (tmp_path / "generated.model").write_bytes(model_of(VocabularySize(128)))
    vocabulary = seqio.SentencePieceVocabulary(str(tmp_path / "generated.model"))
    assert vocabulary.decode(vocabulary.encode("The house, 1984!")) == "The house, 1984!"
    assert vocabulary.encode("\u65e5")[-1] == vocabulary.unk_id == 2


def test_no_room_for_special_ids():
    with pytest.raises(ValueError, match="a vocabulary of 2 pieces has no room for padding, end of sequence and unkn"):
        model_of(VocabularySize(2))


def test_english_is_cut_into_few_pieces(seqio, tmp_path: Path):
    """Otherwise a run on generated vocabularies would truncate what the real one does not."""
    (tmp_path / "generated.model").write_bytes(model_of(VocabularySize(32_000)))
    text = "translate English to German: The house at the end of our street was built by a farmer in the last century."
    assert len(seqio.SentencePieceVocabulary(str(tmp_path / "generated.model")).encode(text)) < 2 * len(text.split())


def test_stock_vocabularies_have_the_same_pieces_wherever_their_sentinels_come_from(seqio, tmp_path: Path):
    """Stock tasks read cc_all.32000 with extra_ids=100, T5X's model files cc_all.32000.100extra with none."""
    models = []
    for name, extra_ids in (("cc_all.32000", 100), ("cc_all.32000.100extra", 0)):
        file = tmp_path / name
        file.write_bytes(model_of(size_of(T5.format(name), rows=32128, extra_ids=extra_ids)))
        models.append(seqio.SentencePieceVocabulary(str(file), extra_ids=extra_ids).sp_model)
    assert models[0] == models[1]
