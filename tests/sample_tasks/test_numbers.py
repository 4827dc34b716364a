"""The translation task's texts are right in both languages."""

from __future__ import annotations

import pytest

from t5x_harness.sample_tasks import numbers


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
