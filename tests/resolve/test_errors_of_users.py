"""What the user's own code raises is reported by the function's name, or by the line if it has none."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from t5x import losses

from t5x_harness.resolve.exceptions import error_text, user_frame
from t5x_harness.resolve.explanation import explain
from t5x_harness.resolve.samples import packed_rows
from t5x_harness.spec import Stage


@pytest.fixture
def without_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test itself is not a user's code."""
    monkeypatch.setattr("t5x_harness.resolve.explanation.raised_by_user_code", lambda error: False)


@pytest.mark.parametrize(
    ("code", "message", "fix"),
    [
        ("import os\nos.no_such\n", "my_tasks.py:2 raised AttributeError: module 'os' has no", "correct that line"),
        ("f = lambda: 1 / 0\nf()\n", "my_tasks.py:1 raised ZeroDivisionError: division by zero", "correct that line"),
        ("def split():\n    1 / 0\nsplit()\n", "split in my_tasks.py:2 raised ZeroDivisionError", "correct split"),
    ],
)
def test_who_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str, fix: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_tasks.py").write_text(code)
    with pytest.raises((AttributeError, ZeroDivisionError)) as caught:
        runpy.run_path(str(tmp_path / "my_tasks.py"))
    finding = explain(caught.value, Stage.RESOLVE, None)
    assert (finding.code, finding.fix) == ("USR01", fix)
    assert finding.message.startswith(message)
    assert str(finding.location).startswith("my_tasks.py:")


@pytest.mark.usefixtures("without_users")
def test_a_mistake_of_the_harness_is_not_blamed_on_t5x() -> None:
    with pytest.raises(KeyError) as caught:
        packed_rows([{}], {"inputs": 1})
    finding = explain(caught.value, Stage.RESOLVE, None)
    assert finding.code == "RUN12"
    assert (
        finding.message == "t5x-harness itself stopped with KeyError: 'inputs': neither T5X nor your code was running"
    )
    assert finding.fix == (
        "report it, with the traceback in the run's log, the Gin files and what `t5x-harness doctor` prints"
    )


@pytest.mark.usefixtures("without_users")
def test_what_stops_is_named() -> None:
    with pytest.raises((AttributeError, TypeError)) as caught:
        losses.cross_entropy_with_logits(None, None, 0.0)
    assert explain(caught.value, Stage.TRAIN, None).message.startswith("T5X stopped with ")
    with pytest.raises(ValueError, match="invalid literal") as other:
        int("n/a")
    assert explain(other.value, Stage.PLAN, None).message.startswith("plan stopped with ValueError: ")


@pytest.mark.parametrize(
    "text",
    [
        "{{function_node __wrapped__IteratorGetNext_output_types_8_device_/job:localhost}} could not convert: n/a\n\t "
        "[[{{node StringToNumber}}]] [Op:IteratorGetNext] name: ",
        "Error in user-defined function passed to MapDataset:25 transformation with iterator: Iterator::Root::Map: "
        "could not convert: n/a\n\t [[{{node StringToNumber}}]]",
    ],
)
def test_what_tensorflow_says_of_its_graphs_is_left_out(text: str) -> None:
    assert error_text(ValueError(text)) == "ValueError: could not convert: n/a"


def test_generated_code_is_not_the_users_line() -> None:
    """AutoGraph's conversions have a file of their own, which is not there to be opened."""
    code = compile("1 / 0", "__autograph_generated_10335_bc74f4b2.py", "exec")
    with pytest.raises(ZeroDivisionError) as caught:
        eval(code, {})
    frame = user_frame(caught.value)
    assert frame is None or "__autograph_generated_" not in frame.file
