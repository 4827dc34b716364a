"""Journeys that would begin after the time that CI names are skipped, and counted; other tests are not."""

import pytest

TESTS = """
import pytest
def test_short(): pass
@pytest.mark.journey
def test_one(): pass
@pytest.mark.journey
def test_other(): pass
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
@pytest.mark.parametrize(("until", "skipped"), [("", 0), ("1", 2), ("99999999999", 0)])
def test_no_journey_begins_after_the_time(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    repository: object,
    until: str,
    skipped: int,
    workers: tuple[str, ...],
) -> None:
    monkeypatch.setenv("T5X_HARNESS_JOURNEYS_UNTIL", until)
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("PYTHONPATH", f"{repository}/tests")
    pytester.makeini("[pytest]\nmarkers = journey: long\n")
    pytester.makepyfile(test_a=TESTS)
    result = pytester.runpytest_subprocess("-p", "skips", "-p", "time_left", *workers)
    result.assert_outcomes(passed=3 - skipped, skipped=skipped)
    assert result.ret == 0
    said = f"{skipped} journeys were not run: the time for them was over"
    assert (said in result.stdout.str()) is bool(skipped)
