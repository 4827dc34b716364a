"""Loading the plugin costs almost nothing: it is loaded in every pytest run of its environment."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("jax", "tensorflow", "numpy", "google", "gin", "seqio", "t5x", "flax", "orbax", "clu", "absl")

# Google's SDK for Vertex AI makes the namespace packages google and google.cloud as every Python starts: not our doing.
_IMPORTED = "{name.partition('.')[0] for name, module in sys.modules.items() if getattr(module, '__file__', True)}"


def test_plugin_imports_nothing_heavy() -> None:
    program = f"import sys, t5x_harness.plugin; print(*sorted({_IMPORTED}))"
    # -P: the folder the tests are run in holds half of the package.
    command = [sys.executable, "-P", "-c", program]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "t5x_harness" in loaded
    assert not set(loaded) & set(HEAVY)


def test_a_session_without_the_harness_imports_nothing_heavy(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # other people's plugins import what they like
    pytester.makepyfile(
        f"""
        import sys

        def test_modules():
            assert not {_IMPORTED} & {set(HEAVY)!r}
        """
    )
    result = pytester.runpytest_subprocess("-p", "t5x_harness.plugin")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("t5x-harness*")
