"""What the user's own code raises is told by the name of the function, or by the line where there is none."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from t5x_harness.resolve.errors import explain
from t5x_harness.spec import Stage


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
