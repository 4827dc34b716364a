"""A T5X that is not the recorded one is named with what differs, before a run stumbles over it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from t5x_harness.doctor import Diagnosis, Environment
from t5x_harness.doctor.t5x_interface import interface
from t5x_harness.runtime.choice import Runtime
from t5x_harness.runtime.import_hooks import EMBEDDED_PATH


@pytest.fixture
def fork(tmp_path: Path) -> Path:
    """A T5X with the recorded interface, as somebody's own."""
    ignored = shutil.ignore_patterns("__pycache__", "*.gin")
    return Path(shutil.copytree(Path(EMBEDDED_PATH, "t5x"), tmp_path / "t5x", ignore=ignored))


def examine(folder: Path) -> Diagnosis:
    return interface.run(Environment((), Runtime("installed", "1234abc", str(folder), "a folder")))


def edit(file: Path, pattern: str, by: str) -> None:
    text, edits = re.subn(pattern, by, file.read_text(encoding="utf-8"))
    assert edits
    file.write_text(text, encoding="utf-8")


def test_one_with_the_recorded_interface_is_all_right(fork: Path) -> None:
    found = examine(fork)
    numbers = re.fullmatch(r"(\d+) of (\d+) functions and classes are as recorded", found.summary)
    assert numbers is not None
    assert int(numbers[1]) == int(numbers[2]) > 300
    assert (found.status, found.findings) == ("ok", ())
    embedded = Runtime("embedded", "0.1.0", str(fork), "none is installed")
    assert interface.run(Environment((), embedded)).summary == "the embedded T5X has the recorded interface"
    assert examine(Path("/nowhere")).summary == "not compared: the sources in /nowhere cannot be read"


def test_what_is_gone_or_takes_other_arguments_is_named(fork: Path) -> None:
    (fork / "config_utils.py").unlink()
    edit(fork / "losses.py", r"def cross_entropy_with_logits\(", "def cross_entropy(")
    edit(fork / "gin_utils.py", r"def parse_gin_flags\(\s*gin_search_paths", "def parse_gin_flags(roots")
    found = examine(fork)
    assert found.status == "ok"
    [note] = found.findings
    assert note.severity == "note"
    assert "installed T5X 1234abc (a folder) differs from the recorded T5X: " in note.message
    assert "it has no module config_utils" in note.message
    assert "losses.cross_entropy_with_logits is not there" in note.message
    assert "gin_utils.parse_gin_flags takes no gin_search_paths and requires roots" in note.message


def test_one_without_what_the_harness_changes_cannot_run(fork: Path) -> None:
    edit(fork / "partitioning.py", r"\bget_mesh\b", "build_mesh")
    found = examine(fork)
    assert found.status == "error"
    assert found.findings[0].message == (
        f"the T5X in {fork} has no t5x.partitioning.get_mesh, which the harness changes: runs cannot start"
    )
    assert found.findings[0].fix == "give the fork this function, or use the embedded T5X: --t5x-runtime=embedded"
