"""A folder has one writer, on this machine and in a bucket; another can take over from one that was killed."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from t5x_harness.buckets import locks
from t5x_harness.buckets.folders import AnyFolder, Folder, StorageError, folder_at
from t5x_harness.buckets.locks import locked

NAME = "made/writer.json"
HOLDER = """
import sys
from t5x_harness.buckets.locks import locked
from t5x_harness.buckets.folders import folder_at

with locked(folder_at(sys.argv[1]), sys.argv[2], RuntimeError):
    print("has it", flush=True)
    sys.stdin.read()
"""


class TakenError(Exception):
    """The caller's own error for a lock that is taken."""


def taken_by(who: str) -> TakenError:
    return TakenError(f"it is written by {who}")


def refused(pid: int, host: str = "", why: str = "") -> pytest.RaisesExc[TakenError]:
    host = re.escape(host or socket.gethostname())
    return pytest.raises(TakenError, match=rf"^it is written by process {pid} on {host}, last seen 2\S+{why}$")


@pytest.fixture
def bucket(gcs_tree: Callable[[Mapping[str, str | bytes]], str]) -> AnyFolder:
    pytest.importorskip("google.cloud.storage")
    pytest.importorskip("google_crc32c", reason="needs the extra google")
    return folder_at(f"{gcs_tree({'other': 'x'})}/run")


@pytest.fixture(params=["local", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> AnyFolder:
    found: AnyFolder = folder_at(str(tmp_path)) if request.param == "local" else request.getfixturevalue("bucket")
    return found


def held_by(place: AnyFolder, seconds: int, host: str) -> None:
    """Leaves a lock whose process does not exist on this machine."""
    seen = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
    assert place.create(NAME, json.dumps({"host": host, "pid": 2**31 - 1, "seen": seen}).encode()) is not None


def test_one_has_it_until_it_ends(place: AnyFolder) -> None:
    with locked(place, NAME, taken_by), locked(place, "other", taken_by), refused(os.getpid()):
        locked(place, NAME, taken_by).__enter__()
    assert place.read_version(NAME) is None
    with locked(place, NAME, taken_by) as lock:
        lock.renew()


def test_another_process_is_refused_until_the_first_is_killed(place: AnyFolder) -> None:
    command = [sys.executable, "-c", HOLDER, place.address, NAME]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "has it\n"
        with refused(first.pid):
            locked(place, NAME, taken_by).__enter__()
        first.kill()
        first.wait()
    with locked(place, NAME, taken_by):
        pass
    assert place.read_version(NAME) is None


@pytest.mark.parametrize("after_one_that_died", [False, True])
def test_of_many_in_the_same_moment_exactly_one_goes_on(place: AnyFolder, after_one_that_died: bool) -> None:
    if after_one_that_died:
        held_by(place, 0, socket.gethostname())
    at_once, all_tried = threading.Barrier(4), threading.Barrier(4)

    def go_on(_: int) -> bool:
        at_once.wait()
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(place, NAME, taken_by))
            except TakenError:
                return False
            finally:
                all_tried.wait()
            return True

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(go_on, range(4))) == [False, False, False, True]


@pytest.mark.parametrize(
    ("seconds", "host", "free"), [(0, "elsewhere", False), (300, "elsewhere", True), (0, "", True)]
)
def test_one_that_was_killed_is_followed(bucket: AnyFolder, seconds: int, host: str, free: bool) -> None:
    """The lock is free at once if the holder ran on this machine, and after two minutes of silence if on another."""
    held_by(bucket, seconds, host or socket.gethostname())
    with contextlib.nullcontext() if free else refused(2**31 - 1, host), locked(bucket, NAME, taken_by):
        pass


def test_one_that_was_silent_for_long_ends_when_another_has_taken_over(
    bucket: AnyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_LOST_AFTER", -1.0)
    with locked(bucket, NAME, taken_by) as first, locked(bucket, NAME, taken_by) as second:
        monkeypatch.setattr(locks, "_RENEWED_AFTER", 0.0)
        for _ in range(2):
            with refused(os.getpid(), why=", as this one was silent for long"):
                first.renew()
            second.renew()


def test_one_that_works_for_long_is_seen_to(bucket: AnyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_RENEWED_AFTER", 0.01)
    with locked(bucket, NAME, taken_by) as lock:
        first = bucket.read_version(NAME)
        while bucket.read_version(NAME) == first:
            time.sleep(0.01)
        lock.renew()
    assert bucket.read_version(NAME) is None


def test_a_write_whose_answer_was_lost_is_not_taken_for_anothers(
    bucket: AnyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sends the write again, and is refused because of its own first attempt."""
    for method in (Folder.create, Folder.replace):

        def twice(place: Folder, *words: object, send: Callable[..., int | None] = method) -> int | None:
            send(place, *words)
            return send(place, *words)

        monkeypatch.setattr(Folder, method.__name__, twice)
    with locked(bucket, NAME, taken_by) as lock:
        monkeypatch.setattr(locks, "_RENEWED_AFTER", 0.0)
        lock.renew()
        lock.renew()
    assert bucket.read_version(NAME) is None


def test_another_storage_is_refused() -> None:
    with pytest.raises(StorageError, match=r"^s3://b/x is neither a folder of this machine nor one of a bucket"):
        folder_at("s3://b/x")
