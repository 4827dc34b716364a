"""SeqIO's vocabularies on generated files: what changes is the file that is opened, and nothing else."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

seqio = pytest.importorskip("seqio")

from t5x_harness.spec import StandInPolicy  # noqa: E402
from t5x_harness.standins.vocabulary_files import VocabularyFiles  # noqa: E402

PATH = "gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model"


@pytest.fixture
def noted() -> list[tuple[str, str]]:
    """What was generated."""
    return []


@pytest.fixture
def install(monkeypatch, tmp_path: Path, noted) -> Callable[..., None]:
    """Makes files up in this process until the test ends."""
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
    assert vocabulary.sp_model == seqio.SentencePieceVocabulary(PATH).sp_model


def test_the_embedding_decides_where_the_path_says_nothing(install):
    install(rows=64_128)
    assert seqio.SentencePieceVocabulary("gs://my-bucket/spm.model", extra_ids=100).vocab_size == 64_100


def test_a_local_file_that_is_missing_stays_missing(install, tmp_path: Path, noted):
    install(StandInPolicy.ALL)
    with pytest.raises(Exception, match="No such file"):
        _ = seqio.SentencePieceVocabulary(str(tmp_path / "none.model")).vocab_size
    assert noted == []


def test_off_leaves_everything(install, noted):
    install(StandInPolicy.OFF)
    with pytest.raises(Exception, match="gs://my-bucket/off"):
        _ = seqio.SentencePieceVocabulary("gs://my-bucket/off.32000.model").vocab_size
    assert noted == []


def test_the_last_run_of_a_process_counts(install, noted):
    install(rows=64_128)
    install(rows=32_128)
    assert seqio.SentencePieceVocabulary("gs://my-bucket/last/spm.model").vocab_size == 32_100
    assert len(noted) == 1


def test_a_mount_without_the_bucket_is_out_of_reach(install):
    install()
    assert seqio.SentencePieceVocabulary("/gcs/no-such-bucket/en.8192/spm.model").vocab_size == 8192
