"""A zygote that is kept forks runs for other sessions if its imports equal those that they would have made."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from t5x_harness.workers.errors import RunDied, ZygoteFailed
from t5x_harness.workers.warm_zygotes import WarmZygotes
from t5x_harness.workers.zygote import Zygote

HERE = str(Path(__file__).parent)
AssertGone = Callable[..., None]
Session = Callable[..., Zygote]


@pytest.fixture(autouse=True)
def no_python_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes a variable that other tests of this process may have left for their servers."""
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module to import."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "heavy_module.py").write_text("VALUE = 1\n")
    return tmp_path / "modules"


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    folder = tmp_path / ("deep" * 20) / ("deeper" * 20)  # paths of sockets have 107 bytes at most
    folder.mkdir(parents=True)
    return folder / "socket"


def keep(socket_path: Path, folder: Path, **settings: Any) -> Zygote:
    """Makes the zygote that is kept, without starting it."""
    return Zygote(preload=["json", "heavy_module"], python_path=[str(folder)], socket_path=socket_path, **settings)


@pytest.fixture
def keeper(socket_path: Path, folder: Path) -> Iterator[Zygote]:
    with keep(socket_path, folder) as zygote:
        zygote.await_ready()
        yield zygote


@pytest.fixture
def session(socket_path: Path, folder: Path) -> Iterator[Session]:
    """Makes the zygotes of other sessions."""
    made = []

    def make(**changes: object) -> Zygote:
        settings = {"preload": ["json", "heavy_module"], "python_path": [str(folder)], "kept": socket_path, **changes}
        made.append(Zygote(**settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for zygote in made:
        zygote.close()


def call(zygote: Zygote, method: str, log: Path, **kwargs: object) -> object:
    with zygote.start("run_objects:Calculator", {}, log=log / "log", python_path=[HERE]) as run:
        return run.call(method, **kwargs)


def test_the_keeper_may_have_begun_in_a_folder_that_is_gone(
    socket_path: Path, folder: Path, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, store = tmp_path / "gone", tmp_path / "store"
    gone.mkdir()
    monkeypatch.chdir(gone)
    with keep(socket_path, folder) as keeper:
        keeper.await_ready()
        gone.rmdir()
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("T5X_HARNESS_GCS_ROOT", str(store))  # its /gcs is the run's own mount
        assert call(session(), "echo", tmp_path, value=3) == 3


def test_one_process_imports_for_all_sessions(keeper: Zygote, session: Session, tmp_path: Path) -> None:
    for zygote in (session(), session()):
        assert call(zygote, "echo", tmp_path, value=3) == 3
        assert zygote.pid == keeper.pid
        assert zygote.refusal == ""
    assert call(keeper, "echo", tmp_path, value=3) == 3


def test_a_session_waits_for_one_that_still_imports(
    socket_path: Path, folder: Path, session: Session, tmp_path: Path, gate: Path
) -> None:
    (folder / "heavy_module.py").write_text(f"open({str(gate)!r}).read()\n")
    with keep(socket_path, folder) as keeper:
        keeper.warm()
        zygote = session()
        zygote.warm()
        gate.write_text("")
        assert call(zygote, "echo", tmp_path, value=3) == 3
        assert zygote.pid == keeper.pid


@pytest.mark.usefixtures("keeper")
def test_each_run_has_its_session_s_surroundings(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "only_here.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(own))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("OF_THE_SESSION", "yes")
    zygote = session()
    with zygote.start("run_objects:Calculator", {}, log=tmp_path / "log", cwd=own, python_path=[HERE]) as run:
        found = run.call("surroundings")
        paths = run.call("look_up", name="sys.path")
        assert run.call("look_up", name="sys.dont_write_bytecode") is True
    assert not zygote.refusal
    assert found["cwd"] == str(own)
    assert found["env"]["OF_THE_SESSION"] == "yes"
    assert paths[:2] == [HERE, str(own)]


def test_what_the_stack_sets_while_it_is_imported_is_no_difference() -> None:
    """A session whose conftest has imported it also uses the kept zygote."""
    program = (
        "import json, os\n"
        "from t5x_harness.workers.listener import facts\n"
        "before = facts(os.environ)\n"
        "import jax, tensorflow, seqio\n"
        "jax.devices()\n"
        "print(json.dumps([before, facts(os.environ)]))\n"
    )
    unset = {name: text for name, text in os.environ.items() if not name.startswith(("TF_CPP_", "TPU_"))}
    done = subprocess.run([sys.executable, "-c", program], env=unset, capture_output=True, text=True, check=True)
    before, after = json.loads(done.stdout)
    assert after == before


@pytest.mark.parametrize(
    ("name", "kept", "wanted", "refusal"),
    [
        ("TF_ENABLE_ONEDNN_OPTS", None, "1", "TF_ENABLE_ONEDNN_OPTS is '1' here and was unset when it imported"),
        ("HOME", "/one", "/other", "HOME is '/other' here and was '/one' when it imported"),
        ("JAX_ENABLE_X64", "1", None, "JAX_ENABLE_X64 is not set here and was set when it imported"),
        ("PYTHONPATH", "/one", None, "PYTHONPATH had /one when it imported, and has not here"),
    ],
)
def test_another_environment_is_refused(
    socket_path: Path,
    folder: Path,
    session: Session,
    tmp_path: Path,
    name: str,
    kept: str | None,
    wanted: str | None,
    refusal: str,
) -> None:
    with keep(socket_path, folder, env={name: kept}) as keeper:
        keeper.await_ready()
        zygote = session(env={name: wanted})
        assert call(zygote, "echo", tmp_path, value=3) == 3  # in its own zygote
        assert zygote.refusal == refusal
        assert zygote.pid != keeper.pid


_READ = os.readlink


@pytest.mark.usefixtures("keeper")
@pytest.mark.parametrize(
    ("name", "value", "refusal"),
    [
        (
            "sys.executable",
            f"{Path(sys.executable).parent}/./{Path(sys.executable).name}",
            "",
        ),  # another name of the same interpreter
        ("sys.prefix", "/elsewhere", f"it runs another Python: {sys.prefix}, not /elsewhere"),
        (
            "os.readlink",
            lambda path: "mnt:[1]" if path == "/proc/self/ns/mnt" else _READ(path),
            "it is in another namespace, and may see other files or another network: mnt:[",
        ),
    ],
)
def test_a_session_with_another_python_or_in_another_namespace_is_refused(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: Any, refusal: str
) -> None:
    zygote = session()
    with monkeypatch.context() as patch:
        patch.setattr(name, value)
        zygote.warm()
    assert call(zygote, "echo", tmp_path, value=3) == 3  # from its own zygote, if not from the kept one
    assert zygote.refusal.startswith(refusal)
    assert bool(zygote.refusal) is bool(refusal)


def test_a_file_written_while_it_was_imported_counts_as_changed(
    socket_path: Path, folder: Path, session: Session, tmp_path: Path, gate: Path
) -> None:
    file = folder / "heavy_module.py"
    file.write_text(f"VALUE = 1\nopen({str(gate)!r}).read()\n")
    with keep(socket_path, folder) as keeper:
        keeper.warm()
        with gate.open("w"):  # it has been read
            file.write_text("VALUE = 2\n")
        keeper.await_ready()
        zygote = session()
        assert call(zygote, "look_up", tmp_path, name="heavy_module.VALUE") == 2
        assert keeper.take_changed_file() == str(file)


def change(file: Path, text: str) -> None:
    file.write_text(text)
    os.utime(file, ns=(1, 1))


@pytest.fixture
def renewed(socket_path: Path, folder: Path) -> Iterator[WarmZygotes]:
    with WarmZygotes(socket_path.parent, lambda path: keep(path, folder)) as kept:
        kept.renew()
        yield kept


def test_another_zygote_takes_the_door_and_the_old_one_ends_with_its_last_session(
    renewed: WarmZygotes, session: Session, folder: Path, tmp_path: Path
) -> None:
    early = session()
    run = early.start("run_objects:Calculator", {}, log=tmp_path / "log", python_path=[HERE])
    file = folder / "heavy_module.py"
    change(file, "VALUE = 2\n")
    alone = session()  # it imports by itself, and reports it
    assert call(alone, "look_up", tmp_path, name="heavy_module.VALUE") == 2
    assert alone.refusal == f"{file} has changed since it was imported: t5x-harness warm is importing again"
    assert [renewed.take_changed_file() for _ in range(2)] == [str(file), ""]
    renewed.renew()
    late = session()
    assert call(late, "look_up", tmp_path, name="heavy_module.VALUE") == 2
    assert not late.refusal
    assert late.pid != early.pid
    assert run.call("look_up", name="heavy_module.VALUE") == 1
    assert call(early, "look_up", tmp_path, name="heavy_module.VALUE") == 1  # all its runs share the same imports
    old = Path(f"/proc/{early.pid}")
    assert old.exists()
    early.close()
    while old.exists():
        assert renewed.take_changed_file() == ""
    assert call(late, "echo", tmp_path, value=3) == 3
    assert call(session(), "echo", tmp_path, value=3) == 3
    assert not renewed.has_ended


def test_imports_that_fail_leave_the_door_to_the_old_one(
    renewed: WarmZygotes, session: Session, folder: Path, tmp_path: Path
) -> None:
    early = session()
    early.await_ready()
    change(folder / "heavy_module.py", "VALUE = ?\n")
    with pytest.raises(ZygoteFailed, match="Importing heavy_module"):
        renewed.renew()
    assert not renewed.has_ended
    assert call(early, "echo", tmp_path, value=3) == 3
    change(folder / "heavy_module.py", "VALUE = 3\n")
    call(session(), "echo", tmp_path)
    assert renewed.take_changed_file() == str(folder / "heavy_module.py")
    renewed.renew()
    late = session()
    assert call(late, "look_up", tmp_path, name="heavy_module.VALUE") == 3
    assert not late.refusal


def test_the_end_of_the_keeper_is_the_end_of_old_and_new(
    renewed: WarmZygotes, session: Session, assert_gone: AssertGone
) -> None:
    early = session()
    early.await_ready()
    renewed.renew()
    late = session()
    late.await_ready()
    with renewed:
        pass
    assert_gone(early.pid, late.pid)


@pytest.mark.usefixtures("keeper")
def test_a_module_that_hides_an_imported_one_is_found(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    (own / "heavy_module").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(own))
    assert call(session(), "echo", tmp_path) is None
    (own / "heavy_module" / "__init__.py").write_text("VALUE = 3\n")
    (own / "json.txt").write_text("")  # not a module
    zygote = session()
    call(zygote, "echo", tmp_path)
    assert zygote.refusal == (f"{own / 'heavy_module'} would be imported here in place of the heavy_module that it has")


@pytest.mark.usefixtures("keeper")
def test_other_imports_are_refused(session: Session, tmp_path: Path) -> None:
    zygote = session(preload=["json"])
    call(zygote, "echo", tmp_path)
    assert zygote.refusal == "it has imported ['json', 'heavy_module'], not ['json']"


def test_a_keeper_that_dies_while_it_imports_is_replaced(
    socket_path: Path, folder: Path, session: Session, tmp_path: Path, gate: Path
) -> None:
    (folder / "heavy_module.py").write_text(f"import os\nif not os.environ.get('HERE'): open({str(gate)!r}).read()\n")
    with keep(socket_path, folder) as keeper:
        keeper.warm()
        zygote = session(env={"HERE": "1"})
        zygote.warm()
        os.kill(keeper.pid or 0, signal.SIGKILL)
        assert call(zygote, "echo", tmp_path, value=3) == 3
        assert zygote.refusal == "it has ended with its t5x-harness warm"


@pytest.mark.usefixtures("keeper")
def test_the_end_of_a_session_is_the_end_of_its_runs_alone(
    session: Session, tmp_path: Path, assert_gone: AssertGone
) -> None:
    one, other = session(), session()
    runs = [z.start("run_objects:Calculator", {}, log=tmp_path / "log", python_path=[HERE]) for z in (one, other)]
    started = [run.call("start_daemon") for run in runs]
    one.close()
    assert_gone(runs[0].pid, started[0])
    assert runs[1].call("echo", value=1) == 1
    assert Path(f"/proc/{started[1]}").exists()


SESSION = """
import sys, time
from pathlib import Path
from t5x_harness.workers.zygote import Zygote
zygote = Zygote(preload=["json", "heavy_module"], python_path=[{folder!r}], kept=Path({socket_path!r}))
run = zygote.start("run_objects:Calculator", {{}}, log=Path({log!r}), python_path=[{here!r}])
print(zygote.pid, run.pid, run.call("start_daemon"), zygote.refusal, flush=True)
time.sleep(600)
"""


def test_a_killed_session_leaves_nothing(
    keeper: Zygote, socket_path: Path, folder: Path, tmp_path: Path, assert_gone: AssertGone
) -> None:
    script = SESSION.format(folder=str(folder), socket_path=str(socket_path), log=str(tmp_path / "log"), here=HERE)
    process = subprocess.Popen([sys.executable, "-P", "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        zygote, run, daemon, refusal = process.stdout.readline().rstrip("\n").split(" ", 3)
    assert refusal == ""
    assert int(zygote) == keeper.pid
    process.kill()
    process.wait()
    assert_gone(int(run), int(daemon))
    assert call(keeper, "echo", tmp_path, value=1) == 1


def test_the_end_of_the_keeper_is_the_end_of_every_run(
    keeper: Zygote, session: Session, socket_path: Path, tmp_path: Path, assert_gone: AssertGone
) -> None:
    assert socket_path.is_socket()
    zygote = session()
    run = zygote.start("run_objects:Calculator", {}, log=tmp_path / "log", python_path=[HERE])
    started = run.call("start_daemon")
    keeper.close()
    assert not socket_path.exists()
    assert_gone(run.pid, started)
    with pytest.raises(RunDied, match="guard process was killed"):
        run.call("hang")
    assert call(zygote, "echo", tmp_path, value=2) == 2  # in its own zygote
    assert zygote.refusal.startswith("it cannot be reached at")


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x02{}", b"\x00\x00\x00\x04null"])
def test_whoever_is_no_session_is_turned_away(
    keeper: Zygote, socket_path: Path, tmp_path: Path, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(socket_path.parent)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(socket_path.name)
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        assert stranger.recv(100) == b""
    assert call(keeper, "echo", tmp_path, value=3) == 3


@pytest.mark.usefixtures("keeper")
def test_silent_connections_hold_nobody_up(session: Session, socket_path: Path, tmp_path: Path) -> None:
    with contextlib.ExitStack() as silent, pytest.MonkeyPatch.context() as patch:
        patch.chdir(socket_path.parent)
        for said in [b"", b"\x00\x00"] * 20:
            stranger = silent.enter_context(socket.socket(socket.AF_UNIX))
            stranger.connect(socket_path.name)
            stranger.sendall(said)
        zygote = session()
        assert call(zygote, "echo", tmp_path, value=3) == 3
        assert not zygote.refusal
        stranger.settimeout(60)
        assert stranger.recv(100) == b""  # it is finally turned away
        assert call(zygote, "echo", tmp_path, value=4) == 4


@pytest.mark.usefixtures("keeper")
def test_sessions_that_start_no_run_for_long_hold_nobody_up(session: Session, tmp_path: Path) -> None:
    for _ in range(2):
        session().await_ready()
    zygote = session()
    assert call(zygote, "echo", tmp_path, value=3) == 3
    assert not zygote.refusal


def test_a_killed_keeper_ends_no_run_that_works_and_the_next_one_is_of_the_session_s_own(
    keeper: Zygote, session: Session, tmp_path: Path, assert_gone: AssertGone
) -> None:
    zygote = session()
    with zygote.start("run_objects:Calculator", {}, log=tmp_path / "log", python_path=[HERE]) as run:
        assert run.call("echo", value=1) == 1
        os.kill(keeper.pid or 0, signal.SIGKILL)
        assert_gone(keeper.pid)
        assert run.call("echo", value=2) == 2
    assert call(zygote, "echo", tmp_path, value=3) == 3
    assert zygote.refusal


@pytest.mark.usefixtures("keeper")
def test_nobody_speaks_to_another_user_s_process(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zygote = session()
    with monkeypatch.context() as patch:
        patch.setattr("os.getuid", lambda: 12345)
        zygote.warm()
    assert "is another user's" in zygote.refusal
    assert call(zygote, "echo", tmp_path, value=3) == 3
