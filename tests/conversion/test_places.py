"""A conversion that ends early leaves no partial output, and two into one folder exclude each other."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from t5x_harness.conversion import conversion
from t5x_harness.conversion.conversion import written_whole
from t5x_harness.conversion.request import ConversionError

WRITER = """
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from t5x_harness.conversion.conversion import written_whole

with written_whole(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("x")
    print(folder, flush=True)
    sys.stdin.read()
    (folder / "whole").write_text("x")
"""


def writer(place: Path) -> subprocess.Popen[str]:
    """Returns a process that has begun to write, and that ends when its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline()
    return process


def refused(place: Path | str) -> str:
    """Returns why nothing can be written to a place."""
    with pytest.raises(ConversionError) as error:
        written_whole(place).__enter__()
    return str(error.value)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fail_halfway(folder: Path) -> None:
    (folder / "file").write_text("x")
    raise KeyError


@pytest.mark.parametrize("is_there", [False, True])
def test_the_folder_is_there_when_it_is_complete(tmp_path: Path, is_there: bool) -> None:
    place = tmp_path / "new/out"
    if is_there:
        place.mkdir(parents=True)
    with written_whole(place) as folder:
        (folder / "file").write_text("x")
        assert not (place / "file").exists()
    assert (names(place), names(tmp_path / "new")) == (["file"], ["out"])


def test_nothing_is_left_of_one_that_fails(tmp_path: Path) -> None:
    with pytest.raises(KeyError), written_whole(tmp_path / "out") as folder:
        fail_halfway(folder)
    assert names(tmp_path) == []


def test_the_second_of_two_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "out"
    with writer(place) as first:
        assert re.fullmatch(
            rf"another conversion is writing {place}: process {first.pid} on \S+, last seen \S+\. Wait for it, or name "
            "another folder",
            refused(place),
        )
        first.communicate("")
    assert first.returncode == 0
    assert names(place) == ["half", "whole"]
    assert names(tmp_path) == ["out"]
    assert refused(place) == f"{place} holds half, whole already: name a folder that is not there"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_one_that_is_killed_leaves_nothing_in_its_place(tmp_path: Path, how: signal.Signals) -> None:
    place = tmp_path / "out"
    with writer(place) as killed:
        os.kill(killed.pid, how)
        killed.wait()
        assert killed.returncode != 0
    assert not place.exists()
    with written_whole(place) as folder:  # the next conversion works as if there had been none
        (folder / "file").write_text("x")
    assert names(place) == ["file"]
    assert names(tmp_path) == ["out"]


def test_what_somebody_else_puts_there_meanwhile_is_kept(tmp_path: Path) -> None:
    place = tmp_path / "out"
    with pytest.raises(ConversionError, match=r"holds theirs already"), written_whole(place):
        (place / "theirs").mkdir(parents=True)
    assert names(place) == ["theirs"]
    assert names(tmp_path) == ["out"]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file/out"):
        assert refused(place) == f"{tmp_path}/file is a file: name a folder that is not there"
    with (
        pytest.raises(ConversionError, match=r"out cannot be written: No space left on device"),
        written_whole(tmp_path / "out"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert names(tmp_path) == ["file"]


@pytest.fixture
def address(
    gcs_tree: Callable[[Mapping[str, str | bytes]], str], copied: list[str], monkeypatch: pytest.MonkeyPatch
) -> str:
    """A new folder in a bucket, with a list in place of its content."""
    pytest.importorskip("google.cloud.storage")

    class Address:
        def __init__(self, path: object) -> None:
            self.path = str(path)

        def is_dir(self) -> bool:
            return False

        def __truediv__(self, name: str) -> Address:
            return Address(f"{self.path}/{name}")

        def copy(self, to: Address) -> None:
            if copied[-1:] == ["no more"]:
                raise OSError("the bucket is gone\nand more")
            copied.append(to.path)

    monkeypatch.setattr(conversion.epath, "Path", Address)
    return f"{gcs_tree({'other': 'x'})}/hf"


@pytest.fixture
def copied() -> list[str]:
    return []


def test_at_an_address_what_makes_it_complete_comes_last(address: str, copied: list[str]) -> None:
    with written_whole(address) as folder:
        for name in ("config.json", "state/commit_success.txt", "model.safetensors", "state/d/0"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
    assert not folder.exists()
    assert copied[:2] == [f"{address}/model.safetensors", f"{address}/state/d/0"]
    assert len(copied) == 4


def test_an_address_that_cannot_be_written(address: str, copied: list[str]) -> None:
    copied.append("no more")
    expected = pytest.raises(ConversionError, match=rf"^{address} cannot be written: the bucket is gone$")
    with expected, written_whole(address) as folder:
        (folder / "file").touch()
    assert refused("s3://b/hf").startswith("s3://b/hf cannot be written: s3://b is neither a folder of this")


@pytest.mark.parametrize("inside", ["", "/hf"])
def test_the_second_of_two_at_an_address_is_refused(address: str, copied: list[str], inside: str) -> None:
    place = address.removesuffix("/hf") + inside
    expected = rf"another conversion is writing {place}: process {os.getpid()} on \S+, last seen \S+\. Wait for it"
    with written_whole(place) as folder:
        (folder / "file").touch()
        assert re.match(expected, refused(f"{place}/"))
    assert copied == [f"{place}/file"]
    with written_whole(place):
        pass
