"""The markers are documented, strict, and mean what they say; without them the plugin costs almost nothing."""

import pytest

from t5x_harness.promotion.marker import selects_only


def test_markers_are_listed_with_their_signature(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.smoke: *", "@pytest.mark.slice(name='v3-8', hosts='one'): *"])


def test_a_smoke_test_that_exercised_nothing_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n\n@pytest.mark.smoke\ndef test_hollow():\n    assert 1 + 1 == 2\n")
    result = pytester.runpytest_subprocess("--strict-markers")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_hollow is marked smoke but exercised nothing: no step was trained*"])


def test_the_work_of_a_first_attempt_is_not_that_of_the_second(pytester: pytest.Pytester) -> None:
    """pytest-rerunfailures does this when it runs a test again."""
    pytester.makeconftest(
        """
        import pytest
        from _pytest.runner import runtestprotocol
        from t5x_harness.plugin import marks

        @pytest.fixture
        def work(request):
            return lambda: marks.count(request.node, marks.EXERCISED, 1)

        def pytest_runtest_protocol(item, nextitem):
            runtestprotocol(item, nextitem=nextitem, log=False)
            runtestprotocol(item, nextitem=nextitem)
            return True
        """
    )
    pytester.makepyfile(
        """
        import pytest

        attempts = []

        @pytest.mark.smoke
        def test_once(work):
            attempts.append(1)
            if len(attempts) == 1:
                work()
                assert False

        @pytest.mark.smoke
        def test_each_time(work):
            work()
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*test_once is marked smoke but exercised nothing: *"])


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
    assert selects_only(expression, "smoke") is only


# Each takes milliseconds of every session, and is only needed once a test is promoted or a server started.
NOT_YET = (
    *("t5x_harness.promotion.order", "t5x_harness.vertex.container", "t5x_harness.vertex.machine"),
    *("t5x_harness.aot", "http.client", "ssl", "ctypes"),
)
HEAVY = ("jax", "tensorflow", "numpy", "google", "gin", "seqio", "t5x", "flax", "orbax", "clu", "absl")

# Google's SDK for Vertex AI, not the plugin, makes the namespace packages google and google.cloud when Python starts.
_IMPORTED = "{name.partition('.')[0] for name, module in sys.modules.items() if getattr(module, '__file__', True)}"


def test_a_session_without_the_harness_imports_nothing_heavy(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # other plugins may import anything
    pytester.makepyfile(
        f"""
        import sys

        def test_modules():
            assert not {_IMPORTED} & {set(HEAVY)!r}
            assert not sys.modules.keys() & {set(NOT_YET)!r}
        """
    )
    result = pytester.runpytest_subprocess("-p", "t5x_harness.plugin")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("t5x-harness*")
