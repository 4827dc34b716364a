"""Folders of dead processes are removed, except the last ones; folders in use never are."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from t5x_harness.system.own_folders import own_folder

PREFIX = "t5x-harness-test-"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def leave(number: int) -> Path:
    """Leaves a folder, with an age according to its number."""
    with own_folder(PREFIX, last=100) as folder:
        folder.is_kept = True
    os.utime(folder.path / "lock", ns=(number, number))
    return folder.path


def test_one_that_is_not_kept_goes_with_its_block(temporary: Path) -> None:
    left = leave(1)
    with pytest.raises(ValueError, match="x"), own_folder(PREFIX, last=3):
        raise ValueError("x")
    assert list(temporary.iterdir()) == [left]


def test_another_process_in_work_keeps_its_own(temporary: Path) -> None:
    code = (
        "import sys, tempfile\n"
        "from t5x_harness.system.own_folders import own_folder\n"
        f"tempfile.tempdir = {str(temporary)!r}\n"
        f"with own_folder({PREFIX!r}) as folder:\n"
        "    print(folder.path, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        its_own = Path(other.stdout.readline().decode().strip())
        with own_folder(PREFIX):
            assert its_own.exists()
        other.kill()
    assert its_own.exists()
    with contextlib.ExitStack() as both, own_folder(PREFIX) as first:
        both.enter_context(own_folder(PREFIX))
        assert not its_own.exists()
        assert first.path.exists()
