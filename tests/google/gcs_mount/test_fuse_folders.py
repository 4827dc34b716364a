"""Folders at a mount, next to Cloud Storage's own API, which knows only names of objects; and names that it refuses."""

import errno
import os
from pathlib import Path

import pytest
from kernel import Kernel

from t5x_harness.google.storage.store import ObjectStore


@pytest.fixture
def kernel(tmp_path: Path, store: ObjectStore) -> Kernel:
    return Kernel(tmp_path)


def content(store: ObjectStore, name: str) -> bytes:
    with store.open_read("data", name) as reader:
        return reader.read()


def test_a_file_is_stored_although_the_last_object_of_its_folder_was_deleted(
    store: ObjectStore, kernel: Kernel
) -> None:
    store.write("data", "run/logs/first", b"x")
    handle = kernel.open("run/logs/second", os.O_WRONLY | os.O_CREAT)
    kernel.write(handle, 0, b"not lost")
    store.delete("data", "run/logs/first")
    assert kernel.listdir("") == []
    kernel.close(handle)
    assert content(store, "run/logs/second") == b"not lost"
    assert kernel.listdir("run/logs") == ["second"]
    store.delete("data", "run/logs/second")
    assert kernel.listdir("") == []


def test_no_bucket_comes_back_with_a_file(store: ObjectStore, kernel: Kernel) -> None:
    handle = kernel.open("f", os.O_WRONLY | os.O_CREAT)
    store.delete_bucket("data")
    with pytest.raises(FileNotFoundError):
        kernel.close(handle)
    assert store.buckets() == []


def test_an_object_that_has_the_name_of_a_files_folder_by_now(store: ObjectStore, kernel: Kernel) -> None:
    store.write("data", "run/first", b"x")
    handle = kernel.open("run/second", os.O_WRONLY | os.O_CREAT)
    store.delete("data", "run/first")
    store.write("data", "run", b"theirs")
    with pytest.raises(NotADirectoryError):
        kernel.close(handle)
    assert content(store, "run") == b"theirs"


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("line\nfeed", errno.EINVAL),
        (".well-known/acme-challenge/x", errno.EINVAL),
        ("/".join(["d" * 250] * 4 + ["e" * 30]), errno.ENAMETOOLONG),
    ],
)
def test_what_no_object_can_be_called_is_refused_at_once(
    store: ObjectStore, kernel: Kernel, tmp_path: Path, name: str, number: int
) -> None:
    (tmp_path / "buckets" / "data" / os.path.dirname(name)).mkdir(parents=True, exist_ok=True)
    store.write("data", "f", b"x")
    for call in (
        lambda: kernel.open(name, os.O_WRONLY | os.O_CREAT),
        lambda: kernel.rename("f", name),
        lambda: kernel.mkdir(name),
    ):
        with pytest.raises(OSError) as caught:  # noqa: PT011 (its number is checked)
            call()
        assert caught.value.errno == number
    assert content(store, "f") == b"x"
