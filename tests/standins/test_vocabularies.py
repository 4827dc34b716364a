"""Generated vocabularies have the right sizes and special ids, decode what they encode, and work in SeqIO."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

seqio = pytest.importorskip("seqio")

from t5x_harness.spec import StandInPolicy  # noqa: E402
from t5x_harness.standins.vocabularies import (  # noqa: E402
    VocabularyFiles,
    VocabularySize,
    model_of,
    size_of,
)

T5 = "gs://t5-data/vocabs/{}/sentencepiece.model"

TEXTS = (
    "translate English to German: The house is wonderful, isn't it?",
    "  two  spaces,\ta tab,\na line feed and a space at the end ",
    "Größe, naïve, ½ \u00a0 e\u0301",
    "日本語 한국어 ไทย עברית عربى हिन्दी",
    "\U0001f600\U0001f469\u200d\U0001f4bb \u202eleft\u202c \x00\x7f",
    "",
)


def written(file: Path, size: VocabularySize) -> seqio.SentencePieceVocabulary:
    file.write_bytes(model_of(size))
    return seqio.SentencePieceVocabulary(str(file))


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
def test_every_text_comes_back_in_python_and_in_tensorflow(size, tmp_path: Path):
    import tensorflow as tf

    vocabulary = written(tmp_path / "generated.model", size)
    assert vocabulary.vocab_size == size.total
    for text in TEXTS:
        ids = vocabulary.encode(text)
        assert vocabulary.decode(ids) == text
        assert vocabulary.encode_tf(text).numpy().tolist() == ids
        # TensorFlow's decoder drops leading spaces with every model.
        assert vocabulary.decode_tf(tf.constant(ids, tf.int32)).numpy().decode() == text.lstrip(" ")


def test_a_vocabulary_too_small_for_bytes_has_letters_and_says_so_of_the_rest(tmp_path: Path):
    vocabulary = written(tmp_path / "generated.model", VocabularySize(128))
    assert vocabulary.decode(vocabulary.encode("The house, 1984!")) == "The house, 1984!"
    assert vocabulary.encode("\u65e5")[-1] == vocabulary.unk_id == 2


def test_no_room_for_special_ids():
    with pytest.raises(ValueError, match="a vocabulary of 2 pieces has no room for padding, end of sequence and unkn"):
        model_of(VocabularySize(2))


def test_english_is_cut_into_few_pieces(tmp_path: Path):
    """Otherwise, a run on generated vocabularies would truncate texts that the real vocabulary does not."""
    text = "translate English to German: The house at the end of our street was built by a farmer in the last century."
    assert len(written(tmp_path / "generated.model", VocabularySize(32_000)).encode(text)) < 2 * len(text.split())


PATH = T5.format("cc_all.32000.100extra")


@pytest.fixture
def noted() -> list[tuple[str, str]]:
    """Returns an empty list for notes of what was generated."""
    return []


@pytest.fixture
def install(monkeypatch, tmp_path: Path, noted) -> Callable[..., None]:
    """Returns a function that generates vocabulary files in this process until the test ends."""
    monkeypatch.setattr(seqio.vocabularies, "_load_model", seqio.vocabularies._load_model)

    def call(policy: StandInPolicy = StandInPolicy.MISSING, rows: int | None = 32_128) -> None:
        VocabularyFiles(tmp_path, policy, rows, lambda path, what: noted.append((path, what))).install()

    return call


def test_a_vocabulary_in_a_bucket_works_and_keeps_its_path(install, noted):
    install()
    vocabulary = seqio.SentencePieceVocabulary(PATH)
    assert vocabulary.vocab_size == 32_100
    assert (vocabulary.pad_id, vocabulary.eos_id, vocabulary.unk_id) == (0, 1, 2)
    assert vocabulary.decode(vocabulary.encode("a house")) == "a house"
    assert vocabulary.sentencepiece_model_file == PATH
    assert noted == [(PATH, "32,100 generated pieces, 100 of them sentinels")]


def test_copies_and_pickles_work_and_are_equal(install, noted):
    install()
    vocabulary = seqio.SentencePieceVocabulary(PATH)
    for other in (copy.deepcopy(vocabulary), pickle.loads(pickle.dumps(vocabulary))):
        assert other == vocabulary
        assert other.vocab_size == 32_100
    assert len(noted) == 1


def test_extra_ids_are_added_as_to_the_real_file(install):
    install()
    path = "gs://t5-data/vocabs/cc_all.32000/sentencepiece.model"
    vocabulary = seqio.SentencePieceVocabulary(path, extra_ids=100)
    assert vocabulary.vocab_size == 32_100
    assert vocabulary.encode("<extra_id_0>") == [32_099]
    assert seqio.SentencePieceVocabulary(path).vocab_size == 32_000
    # Stock tasks read this file with extra ids; T5X's model files read the other one without any.
    assert vocabulary.sp_model == seqio.SentencePieceVocabulary(PATH).sp_model


@pytest.mark.parametrize(
    ("policy", "path", "says"),
    [
        (StandInPolicy.ALL, "{}/none.model", "No such file"),
        (StandInPolicy.OFF, "gs://my-bucket/off.32000.model", "gs://my-bucket/off"),
    ],
)
def test_a_missing_local_file_and_off_leave_everything(install, tmp_path: Path, noted, policy, path, says):
    install(policy)
    with pytest.raises(Exception, match=says):
        _ = seqio.SentencePieceVocabulary(path.format(tmp_path)).vocab_size
    assert noted == []


def test_the_embedding_of_the_last_run_decides_where_the_path_says_nothing(install, noted):
    install(rows=64_128)
    install(rows=32_128)
    assert seqio.SentencePieceVocabulary("gs://my-bucket/last/spm.model", extra_ids=100).vocab_size == 32_100
    assert len(noted) == 1


def test_a_mount_without_the_bucket_is_out_of_reach(install):
    install()
    assert seqio.SentencePieceVocabulary("/gcs/no-such-bucket/en.8192/spm.model").vocab_size == 8192
