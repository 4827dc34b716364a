"""The compile cache is in the user's chosen folder, separate for each JAX and CPU, and does not grow without bound."""

import importlib.metadata
import os
import shutil
from pathlib import Path

import pytest

from t5x_harness.runtime.compile_cache import compile_cache_environment, default_cache_folder, trim_cache
from t5x_harness.system.own_folders import foreign_folder


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
    for found in (None, "its spec"):  # JAX compresses with zstandard if that is installed
        monkeypatch.setattr("importlib.util.find_spec", lambda name, found=found: found)
        folders.add(default_cache_folder({"HOME": "/h"}))
    assert len(folders) == 4


def test_the_folder_is_made_for_this_user_alone_and_everything_is_kept(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        env = compile_cache_environment(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o700, 0o700]
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
    """Reading counts as use, and so do the caches of other versions in the default place."""
    folder = tmp_path / "compile-cache" / "jax-2-x"
    old = _entry(tmp_path / "compile-cache" / "jax-1-x" / "jit_old-cache", size=40, used=100)
    middle = _entry(folder / "jit_middle-cache", size=40, used=200)
    read = _entry(folder / "jit_read-cache", size=40, used=50)
    os.utime(read, (300, 50))
    other = _entry(folder / "users-file", size=1000, used=1)
    assert trim_cache(folder, max_bytes=120) == 0
    for left, entries in ((100, [False, True, True]), (40, [False, False, True])):
        compile_cache_environment(folder, max_bytes=left)
        assert [path.exists() for path in (old, middle, read)] == entries
    assert other.exists()


def _give_away(path: Path) -> str:
    """Makes a file or folder another user's, as far as this user can; returns its description."""
    if os.getuid() == 0:
        os.chown(path, 12345, 12345)
        return f"{path} belongs to another user, number 12345"
    path.chmod(0o777 if path.is_dir() else 0o666)
    return f"{path} can be written by everyone"


@pytest.mark.parametrize("inner", ["", "below", "below/it"])
def test_a_folder_that_others_can_change_is_not_used(tmp_path: Path, inner: str) -> None:
    cache = tmp_path / "cache"
    (cache / inner).mkdir(parents=True)
    said = _give_away(cache)
    with pytest.warns(UserWarning, match="compiles anew") as warned:
        assert compile_cache_environment(cache / inner) == {}
    assert f"({said}, and what a cache holds is run); set T5X_HARNESS_CACHE_DIR to a folder that you alone" in str(
        warned[0].message
    )
    assert len(warned) == 1


@pytest.mark.parametrize(
    ("mode", "said"), [(0o777, "can be written by everyone"), (0o775, "can be written by group 54321"), (0o755, "")]
)
def test_who_may_write_counts_as_who_owns(
    tmp_path: Path, mode: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(mode)
    real = os.stat(cache).st_gid
    monkeypatch.setattr("t5x_harness.system.own_folders._is_private", lambda group: group != real)
    monkeypatch.setattr("t5x_harness.system.own_folders._group_name", lambda group: "54321")
    reason = foreign_folder(cache)
    assert reason == (f"{cache} {said}" if said else "")


def test_a_folder_below_one_with_a_sticky_bit_is_safe(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    assert compile_cache_environment(shared / "mine")
    assert foreign_folder(shared) == f"{shared} can be written by everyone"  # it is not a cache itself


def test_another_user_s_entries_are_removed(tmp_path: Path) -> None:
    own = _entry(tmp_path / "jit_own-cache", size=40, used=100)
    foreign = _entry(tmp_path / "jit_foreign-cache", size=40, used=100)
    _give_away(foreign)
    assert compile_cache_environment(tmp_path)
    assert (own.exists(), foreign.exists()) == (True, False)


def test_a_full_disk_is_named_and_the_cache_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=200 * 1024))
    with pytest.warns(UserWarning, match="no room for the compile cache: the disk of") as warned:
        assert compile_cache_environment(tmp_path)["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path)
    assert f"{tmp_path} has 200 KB left, so what is not in it yet is compiled in every run" in str(warned[0].message)
