"""The texts made of the table of rivers hold what the tasks promise."""

from __future__ import annotations

from t5x_harness.sample_tasks import rivers


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
