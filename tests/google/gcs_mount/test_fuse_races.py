"""Processes at a mount race with Cloud Storage's own API: the answers that both got must be consistent."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mounted import Mounted, needs

from t5x_harness.google.gcs_mount.mount import MountMode
from t5x_harness.google.gcs_mount.probing import command_prefix
from t5x_harness.google.storage.store import ObjectStore

PAGES = 64


@pytest.fixture(autouse=True)
def fuse() -> None:
    needs(MountMode.FUSE)


@pytest.fixture
def mounted(tmp_path: Path, store: ObjectStore) -> Iterator[Mounted]:
    with Mounted(tmp_path) as mounted:
        yield mounted


def body(number: int) -> bytes:
    return number.to_bytes(4, "big") * (PAGES * 1024)


READERS = """
import errno, os, sys, threading
path, acknowledged, stop = sys.argv[1:]

def number(data):
    assert data == data[:4] * (len(data) // 4), f"of {len(set(data))} generations"
    return int.from_bytes(data[:4], "big")

def holds_on():
    # Reads by and by what it has opened, for as long as that can be read.
    while not os.path.exists(stop):
        with open(path, "rb", buffering=0) as file:
            try:
                seen = {number(os.pread(file.fileno(), 4096, page * 4096)) for page in range(PAGES)}
            except OSError as error:
                assert error.errno == errno.ESTALE, error
                continue
            assert len(seen) == 1, f"pages of {seen}"

def opens():
    times = 0
    while not os.path.exists(stop) or times < 50:
        least = int(open(acknowledged).read())
        try:
            found = number(open(path, "rb").read())
        except OSError as error:
            assert error.errno == errno.ESTALE, error
            continue
        assert found >= least, f"{found} where {least} was there before it was opened"
        times += 1
    print("read", times)

failed = []
threading.excepthook = lambda it: (failed.append(it), threading.__excepthook__(it))
threads = [threading.Thread(target=target) for target in (holds_on, holds_on, opens, opens)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(bool(failed))
""".replace("PAGES", str(PAGES))


def test_readers_beside_one_who_overwrites_see_whole_generations_and_never_one_from_before(
    store: ObjectStore, tmp_path: Path
) -> None:
    acknowledged, stop = tmp_path / "acknowledged", tmp_path / "stop"
    store.write("data", "f", body(0))
    acknowledged.write_text("0")
    words = [*command_prefix(tmp_path, MountMode.FUSE), sys.executable, "-I", "-S", "-c", READERS]
    readers = subprocess.Popen([*words, "/gcs/data/f", acknowledged, stop], stderr=subprocess.PIPE, text=True)
    try:
        for number in range(1, 400):
            store.write("data", "f", body(number))
            beside = tmp_path / "beside"
            beside.write_text(str(number))
            beside.replace(acknowledged)
    finally:
        stop.touch()
    _, said = readers.communicate(timeout=120)
    assert readers.returncode == 0, said
