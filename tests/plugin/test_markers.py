"""The markers are documented, strict, and mean what they say."""

from __future__ import annotations

import pytest

from t5x_harness.plugin import marks


def test_markers_are_listed_with_their_signature(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.smoke: *", "@pytest.mark.slice(name='v3-8'): *"])


def test_a_smoke_test_that_exercised_nothing_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n\n@pytest.mark.smoke\ndef test_hollow():\n    assert 1 + 1 == 2\n")
    result = pytester.runpytest_subprocess("--strict-markers")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_hollow is marked smoke but exercised nothing: no step was trained*"])


def test_a_slice_marker_with_two_names_is_a_usage_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import pytest\n\n@pytest.mark.slice('v3-8', 'v3-32')\ndef test_it(t5x_run):\n    t5x_run('config.gin')\n"
    )
    result = pytester.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: *::test_it: use @pytest.mark.slice('v3-8'), one slice by name; not slice('v3-8', 'v3-32')"]
    )


def test_a_slice_marker_without_a_slice_is_a_usage_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n\n@pytest.mark.slice('v3-9')\ndef test_it():\n    pass\n")
    result = pytester.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *::test_it: @pytest.mark.slice: 'v3-9' is no TPU slice: nearest names: v3-8*"])


@pytest.mark.parametrize(
    ("expression", "only"),
    [
        ("smoke", True),
        ("smoke and not slow", True),
        ("not tpu and smoke", True),
        ("smoke or tpu", True),
        ("not smoke", False),
        ("slow", False),
        ("not slow", False),
        ("", False),
        ("smokey", False),
    ],
)
def test_an_expression_selects_because_of_the_mark(expression: str, only: bool) -> None:
    assert marks.selects_only(expression, "smoke") is only
