"""A skip of a test or file that is not on the list fails in CI, with and without xdist."""

import pytest

TESTS = """
import pytest
def test_passes(): pass
def test_skipped(): pytest.skip({reason!r})
"""
FILE = "import pytest\npytest.importorskip('no_such_module', reason='no extra x')\n"


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
@pytest.mark.parametrize(
    ("files", "ci", "failed"),
    [
        ({"test_a": TESTS.format(reason="no redis-server is installed")}, "true", ""),
        ({"test_a": TESTS.format(reason="it is Monday")}, "true", "test_a.py::test_skipped: Skipped: it is Monday"),
        ({"test_a": TESTS.format(reason="it is Monday")}, "", ""),
        ({"test_a": "def test_passes(): pass", "test_b": FILE}, "true", "test_b.py: Skipped: no extra x"),
    ],
)
def test_only_skips_on_the_list_pass_in_ci(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    repository: object,
    files: dict[str, str],
    ci: str,
    failed: str,
    workers: tuple[str, ...],
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PYTHONPATH", f"{repository}/tests")
    pytester.makepyfile(**files)
    result = pytester.runpytest_subprocess("-p", "skips", *workers)
    assert result.ret == (1 if failed else 0)
    assert (f"skipped for a reason that tests/skips.py does not have: {failed}" in result.stdout.str()) is bool(failed)
