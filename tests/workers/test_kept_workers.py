"""A session leaves its worker for the next session of the same user, environment and project."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from t5x_harness.workers import framing, keeping
from t5x_harness.workers.keeping import KeptPlace, all_places, keeps
from t5x_harness.workers.kept_process import KeptProcess
from t5x_harness.workers.listener import Listener
from t5x_harness.workers.zygote import Zygote

HERE = str(Path(__file__).parent)
AssertGone = Callable[..., None]
Session = Callable[..., Zygote]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the folder that holds all places of this test."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("T5X_HARNESS_KEEP", "1")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary"


@pytest.fixture
def place(temporary: Path) -> KeptPlace:
    found = KeptPlace.find(os.environ, "the T5X", "the project")
    assert found is not None
    return found


@pytest.fixture
def session(place: KeptPlace, assert_gone: AssertGone) -> Iterator[Session]:
    """Makes the zygotes of sessions, of which none is left at the end."""
    made = []

    def make(**changes: object) -> Zygote:
        made.append(Zygote(**{"preload": ["json"], "place": place, **changes}))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for zygote in made:
        zygote.close()
    assert_gone(*place.stop())


def use(zygote: Zygote, log: Path) -> int:
    """Makes a run, and returns the pid of the process that it was forked from."""
    with zygote.start("run_objects:Calculator", {}, log=log / "log", python_path=[HERE]) as run:
        assert run.call("echo", value=3) == 3
    assert zygote.pid is not None
    return zygote.pid


def test_the_next_session_forks_from_what_the_last_one_has_imported(
    session: Session, place: KeptPlace, temporary: Path, tmp_path: Path, assert_gone: AssertGone
) -> None:
    with session() as first:
        pid = use(first, tmp_path)
        assert first.is_to_stay
    for _ in range(2):
        with session() as later:
            assert use(later, tmp_path) == pid
            assert not later.is_to_stay
    assert place.stop() == [pid]
    assert_gone(pid)
    assert list(temporary.iterdir()) == []
    with session() as last:
        assert use(last, tmp_path) != pid


def test_it_stays_when_the_folder_and_the_process_of_its_session_are_gone(
    session: Session, place: KeptPlace, tmp_path: Path
) -> None:
    (gone := tmp_path / "gone").mkdir()
    program = (
        "import os, sys, tempfile\n"
        "from pathlib import Path\n"
        "from t5x_harness.workers.keeping import KeptPlace\n"
        "from t5x_harness.workers.zygote import Zygote\n"
        f"with Zygote(preload=['json'], place=KeptPlace(Path({str(place.folder)!r}))) as zygote:\n"
        "    zygote.await_ready()\n"
        "    print(zygote.pid)\n"
    )
    # Its output ends with it: what stays holds no pipe open, or a shell's pipeline would wait for it.
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=gone, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    gone.rmdir()
    with session() as later:
        assert use(later, tmp_path) == int(done.stdout)


def test_a_session_that_is_killed_leaves_nothing(place: KeptPlace, assert_gone: AssertGone) -> None:
    program = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from t5x_harness.workers.keeping import KeptPlace\n"
        "from t5x_harness.workers.zygote import Zygote\n"
        f"zygote = Zygote(preload=['json'], place=KeptPlace(Path({str(place.folder)!r})))\n"
        "zygote.await_ready()\n"
        "print(zygote.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert_gone(int(done.stdout))
    assert not place.socket_path.exists()


def test_killing_it_costs_only_the_imports(session: Session, tmp_path: Path, assert_gone: AssertGone) -> None:
    with session() as first:
        pid = use(first, tmp_path)
    os.kill(pid, signal.SIGKILL)
    assert_gone(pid)
    with session() as second:
        other = use(second, tmp_path)
        assert other != pid
        assert second.refusal == ""
    with session() as third:
        assert use(third, tmp_path) == other


def test_a_run_goes_on_when_it_is_killed_and_the_next_one_has_another(
    session: Session, tmp_path: Path, assert_gone: AssertGone
) -> None:
    with session() as first:
        pid = use(first, tmp_path)
    with session() as second:
        with second.start("run_objects:Calculator", {}, log=tmp_path / "log", python_path=[HERE]) as run:
            os.kill(pid, signal.SIGKILL)
            assert_gone(pid)
            assert run.call("echo", value=3) == 3
        assert use(second, tmp_path) != pid


def test_a_session_that_cannot_use_it_takes_its_place(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, assert_gone: AssertGone
) -> None:
    with session() as first:
        pid = use(first, tmp_path)
    monkeypatch.setenv("TF_CPP_MIN_VLOG_LEVEL", "1")
    with session() as second:
        other = use(second, tmp_path)
        assert other != pid
        assert second.refusal == ""  # nobody asked for the first one, so nobody is told
    assert_gone(pid)
    with session() as third:
        assert use(third, tmp_path) == other


def test_one_that_was_asked_to_end_waits_for_the_sessions_that_use_it(
    session: Session, place: KeptPlace, tmp_path: Path, assert_gone: AssertGone
) -> None:
    with session() as first:
        pid = use(first, tmp_path)
    with session() as second:
        assert use(second, tmp_path) == pid
        assert place.stop() == [pid]
        assert use(second, tmp_path) == pid
        with session() as third:
            assert use(third, tmp_path) != pid
    assert_gone(pid)


def test_of_sessions_that_end_at_once_one_worker_stays(
    session: Session, place: KeptPlace, tmp_path: Path, assert_gone: AssertGone
) -> None:
    zygotes = [session() for _ in range(4)]
    pids = [use(zygote, tmp_path) for zygote in zygotes]
    threads = [threading.Thread(target=zygote.close) for zygote in zygotes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with session() as later:
        stays = use(later, tmp_path)
    assert stays in pids
    assert_gone(*(pid for pid in pids if pid != stays))
    assert len(list(place.folder.iterdir())) == 2  # a socket and the link to it


def test_one_that_belongs_to_a_session_is_not_ended_by_others(
    session: Session, place: KeptPlace, tmp_path: Path
) -> None:
    with session() as first:
        pid = use(first, tmp_path)
        assert place.stop() == []
        assert use(first, tmp_path) == pid


def test_a_file_that_has_changed_ends_it(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, assert_gone: AssertGone
) -> None:
    (module := tmp_path / "imported_here.py").write_text("")
    os.utime(module, (1000, 1000))
    given = {"preload": ["imported_here"], "python_path": [str(tmp_path)]}
    with session(**given) as first:
        pid = use(first, tmp_path)
    with session(**given) as second:
        assert use(second, tmp_path) == pid
    os.utime(module, (2000, 2000))
    assert_gone(pid)  # without anyone asking for it


def alone(seconds: float, path: Path) -> tuple[KeptProcess, Listener]:
    path.touch()
    listener = Listener(socket.socket(socket.AF_UNIX), {}, {}, time.time_ns())
    return KeptProcess(listener, path, seconds), listener


def test_it_ends_after_its_time_without_a_session(tmp_path: Path) -> None:
    kept, _ = alone(0.2, tmp_path / "socket")
    assert not kept.is_over(used=False)
    assert kept.patience <= 0.2
    time.sleep(0.2)
    assert not kept.is_over(used=True)  # its time begins anew
    assert not kept.is_over(used=False)
    time.sleep(0.2)
    assert kept.is_over(used=False)


def test_it_ends_when_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("t5x_harness.workers.kept_process._LOOK_SECONDS", 0.0)
    kept, _ = alone(1000.0, tmp_path / "socket")
    monkeypatch.setattr("t5x_harness.workers.kept_process.available_bytes", lambda: 8 << 30)
    assert not kept.is_over(used=False)
    monkeypatch.setattr("t5x_harness.workers.kept_process.available_bytes", lambda: 512 << 20)
    assert not kept.is_over(used=True)
    assert kept.is_over(used=False)


def test_it_ends_when_no_session_can_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("t5x_harness.workers.kept_process._LOOK_SECONDS", 0.0)
    monkeypatch.setattr("t5x_harness.workers.kept_process.available_bytes", lambda: 8 << 30)
    kept, _ = alone(1000.0, tmp_path / "socket")
    assert not kept.is_over(used=False)
    (tmp_path / "socket").unlink()
    assert kept.is_over(used=False)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, True),
        ({"CI": "true"}, False),
        ({"CI": "false"}, True),
        ({"CI": "true", "T5X_HARNESS_KEEP": "1"}, True),
        ({"T5X_HARNESS_KEEP": "0"}, False),
        ({"T5X_HARNESS_KEEP": "off"}, False),
    ],
)
def test_nothing_stays_in_ci_or_where_the_user_does_not_want_it(variables: dict[str, str], expected: bool) -> None:
    assert keeps(variables) is expected
    assert (KeptPlace.find(variables, "the T5X") is not None) is expected


def test_a_choice_that_cannot_be_understood_leaves_nothing_and_is_said() -> None:
    with pytest.warns(UserWarning, match="T5X_HARNESS_KEEP") as warned:
        assert KeptPlace.find({"T5X_HARNESS_KEEP": "15m"}, "the T5X") is None
    assert [str(each.message) for each in warned] == [
        "T5X_HARNESS_KEEP must be 1 or 0 (or on, off, true, false, yes, no), not '15m'; the process that has imported "
        "T5X ends with this call"
    ]


def test_nothing_is_left_where_others_could_change_it(
    place: KeptPlace, session: Session, temporary: Path, tmp_path: Path, assert_gone: AssertGone
) -> None:
    with session() as first:
        pid = use(first, tmp_path)
    root = place.folder.parent
    assert root.stat().st_mode & 0o077 == 0
    assert place.stop() == [pid]
    assert_gone(pid)
    root.mkdir()
    root.chmod(0o777)
    assert KeptPlace.find(os.environ, "the T5X", "the project") is None
    assert all_places() == []
    root.rmdir()


def test_places_differ_by_what_is_imported_and_by_project(place: KeptPlace) -> None:
    assert KeptPlace.find(os.environ, "the T5X", "the project") == place
    assert KeptPlace.find(os.environ, "the T5X", "another project") != place
    assert KeptPlace.find(os.environ, "another T5X", "the project") != place


def test_what_answers_otherwise_is_not_waited_for(place: KeptPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "_ANSWER_SECONDS", 0.1)
    path = place.new_path()
    monkeypatch.chdir(path.parent)  # paths of sockets have 107 bytes at most
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path.name)
        silent.listen()
        assert keeping.ask_to_stop(path) is None  # it says nothing
        silent.accept()[0].close()
        threading.Thread(target=lambda: silent.accept()[0].sendall(framing.encode([1, 2]))).start()
        assert place.stop() == []
    assert place.stop() == []
    assert list(place.folder.iterdir()) == []  # the socket of a process that is gone is removed
