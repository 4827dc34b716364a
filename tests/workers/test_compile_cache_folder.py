"""The compile cache lies where the user wants it, apart for each JAX and CPU, and does not grow without bound."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

import pytest

from t5x_harness.workers import compile_cache_environment, default_cache_folder
from t5x_harness.workers.compile_cache import trim_cache


@pytest.mark.parametrize(
    ("env", "root"),
    [
        ({"HOME": "/h"}, "/h/.cache/t5x-harness"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/x/t5x-harness"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "not/absolute"}, "/h/.cache/t5x-harness"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x", "T5X_HARNESS_CACHE_DIR": "/own"}, "/own"),
    ],
)
def test_the_environment_says_where(env: dict[str, str], root: str) -> None:
    folder = default_cache_folder(env)
    assert folder
    assert folder.parent == Path(root, "compile-cache")
    assert folder.name.startswith(f"jax-{importlib.metadata.version('jax')}-")


@pytest.mark.parametrize("env", [{"T5X_HARNESS_CACHE_DIR": "off", "HOME": "/h"}, {"T5X_HARNESS_CACHE_DIR": "OFF"}, {}])
def test_there_may_be_none(env: dict[str, str]) -> None:
    folder = default_cache_folder(env)
    assert folder is None
    assert compile_cache_environment(folder) == {}


def test_versions_machines_and_compressions_have_folders_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {default_cache_folder({"HOME": "/h"})}
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    folders.add(default_cache_folder({"HOME": "/h"}))
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.10.99")
    folders.add(default_cache_folder({"HOME": "/h"}))
    for found in (None, "its spec"):  # JAX compresses with zstandard where that is installed
        monkeypatch.setattr("importlib.util.find_spec", lambda name, found=found: found)
        folders.add(default_cache_folder({"HOME": "/h"}))
    assert len(folders) == 4


def test_the_folder_is_made_and_everything_is_kept(tmp_path: Path) -> None:
    env = compile_cache_environment(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert env["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "a" / "b")
    assert env["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] == "0"
    assert env["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] == "-1"


def test_a_folder_that_cannot_be_made_is_told_and_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match=r"compiles anew .*set T5X_HARNESS_CACHE_DIR to a folder"):
        assert compile_cache_environment(tmp_path / "file" / "cache") == {}


def _entry(path: Path, *, size: int, used: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (used, used))
    return path


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    old = _entry(tmp_path / "jit_old-cache", size=40, used=100)
    middle = _entry(tmp_path / "jit_middle-cache", size=40, used=200)
    new = _entry(tmp_path / "jit_new-cache", size=40, used=300)
    other = _entry(tmp_path / "users-file", size=1000, used=1)
    assert trim_cache(tmp_path, max_bytes=120) == 0
    compile_cache_environment(tmp_path, max_bytes=100)
    assert [p.exists() for p in (old, middle, new, other)] == [False, True, True, True]


def test_reading_counts_as_use(tmp_path: Path) -> None:
    read = _entry(tmp_path / "jit_read-cache", size=40, used=100)
    os.utime(read, (900, 100))
    unread = _entry(tmp_path / "jit_unread-cache", size=40, used=200)
    trim_cache(tmp_path, max_bytes=40)
    assert (read.exists(), unread.exists()) == (True, False)


def test_other_versions_count_in_the_default_place(tmp_path: Path) -> None:
    folder = tmp_path / "compile-cache" / "jax-2-x"
    old = _entry(tmp_path / "compile-cache" / "jax-1-x" / "jit_a-cache", size=40, used=100)
    new = _entry(folder / "jit_a-cache", size=40, used=200)
    trim_cache(folder, max_bytes=40)
    assert (old.exists(), new.exists()) == (False, True)
