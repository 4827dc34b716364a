"""Ctrl-C in ``run`` and ``plan``: what is known of all runs is printed, and nothing is left."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from interrupts import HANGING, LIGHT, Hanging

from t5x_harness.sample_tasks import CONFIGS

NAMES = ("one.gin", "two.gin")
MAIN = f"{LIGHT}\nimport sys\nfrom t5x_harness.commands import main\nsys.exit(main.main())\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two configs whose resolve hangs; one has a warning of lint."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    shutil.copytree(CONFIGS / "models", tmp_path / "models")
    (tmp_path / "hanging.py").write_text(HANGING)
    text = (CONFIGS / "infer_answer.gin").read_text()
    (tmp_path / "one.gin").write_text(text)
    (tmp_path / "two.gin").write_text(f"{text}\nNO_SUCH_MACRO = 1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "times"), [(("run",), 1), (("run", "--ahead=0"), 1), (("plan",), 2), (("run", "--format=json"), 1)]
)
def test_what_is_known_is_printed(folder: Path, command: Sequence[str], times: int) -> None:
    one_by_one = "--ahead=0" in command
    arguments = [*command, "--gcs=off", "--t5x-runtime=embedded", *NAMES]
    session = Hanging(["-c", MAIN, *arguments], folder, *(NAMES[:1] if one_by_one else NAMES))
    session.interrupt(times=times)
    status, printed, said = session.end()
    assert status == 130
    assert "Traceback" not in printed + said
    assert session.processes == []
    text = said if "--format=json" in command else printed
    assert "infer  v3-8   ok    -" in text
    assert "resolve: interrupted" in text
    assert ("NO_SUCH_MACRO" in text) is not one_by_one
    assert f"{1 if one_by_one else 2} not finished" in text
    if "--format=json" in command:
        assert printed == ""
        assert said.endswith("\nt5x-harness: interrupted; --format json was not written\n")
    else:
        assert said.endswith("t5x-harness: interrupted\n")
    assert list((folder / "temporary").iterdir()) == []


def test_a_second_ctrl_c_finds_it_printed_however_long_the_clearing_up_takes(folder: Path) -> None:
    endless = "import time\nfrom t5x_harness.runs import pool\npool.RunPool.close = lambda *_, **__: time.sleep(600)\n"
    arguments = ["run", "--gcs=off", "--t5x-runtime=embedded", *NAMES]
    session = Hanging(["-c", f"{endless}{MAIN}", *arguments], folder, *NAMES)
    session.interrupt(times=2)
    status, printed, said = session.end()
    assert status == 130
    assert "resolve: interrupted" in printed
    assert "2 not finished" in printed
    assert said.endswith("t5x-harness: interrupted\n\nt5x-harness: interrupted again; ended without clearing up\n")
