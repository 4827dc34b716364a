"""The data of the sample tasks is what the script makes, and is correct in both languages, split and scored."""

from pathlib import Path

import pytest
import seqio

from t5x_harness.sample_tasks import (
    make_data,
    metrics,
    numbers,
    rivers,
    tasks,
)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (make_data.make_text, ["rivers-train.txt", "rivers-validation.txt"]),
        (make_data.make_languages, ["languages-train.tsv", "languages-validation.tsv"]),
        (make_data.make_questions, ["rivers-train.tfrecord", "rivers-validation.tfrecord"]),
    ],
)
def test_shipped_files_equal_made_files(make, names: list[str], tmp_path: Path) -> None:
    make(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    for name in names:
        assert (tmp_path / name).read_bytes() == (rivers.DATA / name).read_bytes(), f"{name}: run make_data"


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [
        (0, "zero", "null"),
        (1, "one", "eins"),
        (12, "twelve", "zwölf"),
        (17, "seventeen", "siebzehn"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (100, "one hundred", "einhundert"),
        (101, "one hundred one", "einhunderteins"),
        (671, "six hundred seventy-one", "sechshunderteinundsiebzig"),
        (1021, "one thousand twenty-one", "eintausendeinundzwanzig"),
        (9999, "nine thousand nine hundred ninety-nine", "neuntausendneunhundertneunundneunzig"),
    ],
)
def test_numbers_in_words(number: int, english: str, german: str) -> None:
    assert numbers.english(number) == english
    assert numbers.german(number) == german


def test_every_number_has_its_own_words() -> None:
    assert len({numbers.english(n) for n in range(numbers.LIMIT)}) == numbers.LIMIT
    assert len({numbers.german(n) for n in range(numbers.LIMIT)}) == numbers.LIMIT


@pytest.mark.parametrize("number", [-1, numbers.LIMIT])
def test_numbers_out_of_range_are_refused(number: int) -> None:
    with pytest.raises(ValueError, match=f"{number} is not between 0 and 9999"):
        numbers.german(number)


def test_rivers_are_sorted_by_length_and_distinct() -> None:
    lengths = [r.length for r in rivers.rivers()]
    assert lengths == sorted(lengths, reverse=True)
    assert len({r.name for r in rivers.rivers()}) == len(lengths) == 40


def test_the_first_answer_stands_in_its_context() -> None:
    questions = list(rivers.questions())
    assert len(questions) == 4 * 40
    assert all(q.answers[0] in q.context for q in questions)


def test_held_out_documents_are_not_trained_on() -> None:
    read = lambda name: (rivers.DATA / name).read_text(encoding="utf-8").splitlines()  # noqa: E731
    for stem in ("rivers-{}.txt", "languages-{}.tsv"):
        train, validation = read(stem.format("train")), read(stem.format("validation"))
        assert validation
        assert not set(train) & set(validation)


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
    """This holds for the few examples of a shrunk run. With fewer than four words each, BLEU would always be zero."""
    few = [row["english"].decode() for row in tasks.number_pairs("validation").take(8).as_numpy_iterator()]
    assert metrics.bleu(few, few)["bleu"] == pytest.approx(100.0)


def count(task: str, split: str) -> int:
    return sum(1 for _ in seqio.TaskRegistry.get(task).source.get_dataset(split, shuffle=False))


def test_a_part_of_a_tfds_split_is_read() -> None:
    assert count("sample_sums", "validation[:8]") == 8


@pytest.mark.parametrize("task", ["sample_translate", "sample_stream"])
def test_a_part_of_a_split_is_refused_by_functions(task: str) -> None:
    message = r"there is no split 'validation\[:8\]', only 'train' and 'validation', and no parts of them"
    with pytest.raises(ValueError, match=message):
        count(task, "validation[:8]")


@pytest.mark.parametrize("task", ["sample_answer", "sample_classify", "sample_span_corruption"])
def test_a_part_of_a_split_is_refused_by_files(task: str) -> None:
    with pytest.raises(KeyError, match=r"validation\[:8\]"):
        count(task, "validation[:8]")
