"""The example in docs/workers.md does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def test_the_example_runs(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (repository / "docs" / "workers.md").read_text(), re.DOTALL)
    module, program = blocks
    (tmp_path / "my_runs.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "docs/workers.md", "exec"), {})
    assert capsys.readouterr().out.splitlines()[-1] == "{'stage': 'count', 'step': 8, 'of': 8}"
