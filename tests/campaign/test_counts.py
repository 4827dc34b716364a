"""Counts of what runs do are compared with kept ones; CI compares those of a sample config."""

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "counts.py"
STAGES = [{"stage": "train", "counts": {"traces": 14, "cache hits": 9}}, {"stage": "lint"}]
REPORT = {"runs": [{"stages": STAGES, "checkpoints": [{}, {}]}]}
Check = Callable[..., int]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Check:
    """Runs the script on a report, with kept numbers."""

    def run(counts: dict[str, int], *, python: str = "", option: str = "--check") -> int:
        monkeypatch.syspath_prepend(SCRIPT.parent)  # where Python finds what the script imports
        script = runpy.run_path(str(SCRIPT))
        names: dict[str, Any] = script["main"].__globals__
        kept = {"versions": {**script["versions"](), **({"python": python} if python else {})}, "counts": counts}
        (tmp_path / "counts.json").write_text(json.dumps(kept))
        names["KEPT"] = tmp_path / "counts.json"
        names["_report"] = lambda config, cache: REPORT
        monkeypatch.setattr(sys, "argv", ["counts.py", option, "train.gin"])
        return int(script["main"]())

    return run


def kept(traces: int) -> dict[str, int]:
    return {
        f"train, {cache} cache, {name}": number
        for cache in ("empty", "filled")
        for name, number in (("train, traces", traces), ("checkpoints", 2))
    }


def test_a_number_that_has_risen_is_named(check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(kept(traces=13)) == 1
    assert capsys.readouterr().err == (
        "risen by more than 3 %: train, empty cache, train, traces: 14, and was 13\n"
        "risen by more than 3 %: train, filled cache, train, traces: 14, and was 13\n"
    )


def test_equal_and_smaller_numbers_pass(check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(kept(traces=14)) == check(kept(traces=20)) == 0
    assert capsys.readouterr().err == ""


def test_a_number_that_was_not_counted_is_named(check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    assert check({}) == 1
    assert "train, empty cache, checkpoints: 2, and was not counted\n" in capsys.readouterr().err


def test_numbers_of_other_versions_are_not_compared(check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    assert check({}, python="2.7.18") == 0
    assert (
        capsys.readouterr().out == "not compared: the kept numbers are those of python 2.7.18; --write keeps new ones\n"
    )


def test_new_numbers_are_kept(check: Check, tmp_path: Path) -> None:
    assert check({}, option="--write") == 0
    assert json.loads((tmp_path / "counts.json").read_text())["counts"] == kept(traces=14)
