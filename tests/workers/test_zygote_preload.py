"""The zygote imports once, refuses modules that cannot be forked, and names the one at fault."""

import os
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from t5x_harness.workers.errors import ZygoteFailed
from t5x_harness.workers.zygote import Zygote

CODE = {
    "good": """
        import os
        PID = os.getpid()
        os.environ["SET_BY_IMPORT"] = "yes"
        class Made:
            def __init__(self, argument, progress): pass
            def imported_by(self): return PID
            def environment(self): return os.environ["SET_BY_IMPORT"]
    """,
    "raises": "import no_such_dependency",
    "exits": "raise SystemExit(3)",
    "crashes": "import os; os.abort()",
    "hangs": "import time; time.sleep(600)",
    "threads": """
        import threading, time
        threading.Thread(target=time.sleep, args=(600,), name="poller", daemon=True).start()
    """,
}


@pytest.fixture
def modules(tmp_path: Path) -> str:
    for name, code in CODE.items():
        (tmp_path / f"{name}_module.py").write_text(textwrap.dedent(code))
    return str(tmp_path)


def test_a_module_is_imported_once_for_all_runs(modules: str, tmp_path: Path) -> None:
    with Zygote(preload=["json", "good_module"], python_path=[modules]) as zygote:
        zygote.warm()
        importers = set()
        for _ in range(2):
            with zygote.start("good_module:Made", {}, log=tmp_path / "log") as run:
                importers.add(run.call("imported_by"))
        assert importers == {zygote.pid}


def test_what_an_import_puts_into_the_environment_stays(modules: str, tmp_path: Path) -> None:
    with Zygote(preload=["good_module"], python_path=[modules], env={"SET_BY_IMPORT": None}) as zygote:
        with zygote.start("good_module:Made", {}, log=tmp_path / "log") as run:
            assert run.call("environment") == "yes"
        with zygote.start("good_module:Made", {}, log=tmp_path / "log", env={"SET_BY_IMPORT": "no"}) as run:
            assert run.call("environment") == "no"


def test_a_zygote_that_is_killed_while_it_imports_fails_one_run(modules: str, tmp_path: Path, gate: Path) -> None:
    (tmp_path / "waits_module.py").write_text(f"open({str(gate)!r}).read()\n")
    with Zygote(preload=["waits_module"], python_path=[modules]) as zygote:
        zygote.warm()
        killed = zygote.pid
        assert killed
        with gate.open("w"):  # its import is running now
            os.kill(killed, signal.SIGKILL)
            with pytest.raises(ZygoteFailed) as caught:
                zygote.start("json:dumps", {}, log=tmp_path / "log")
        assert str(caught.value) == (
            "The worker process was killed by SIGKILL (out of memory?) while it imported waits_module; the next run "
            "gets a new one"
        )
        (tmp_path / "waits_module.py").write_text("")
        with zygote.start("good_module:Made", {}, log=tmp_path / "log") as run:
            assert run.call("imported_by") == run.pid
        assert zygote.pid != killed


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raises", "Importing raises_module in the worker process failed:\n"),
        ("raises", "ModuleNotFoundError: No module named 'no_such_dependency'"),
        ("exits", "SystemExit: 3"),
        ("crashes", "The worker process was killed by SIGABRT"),
        ("crashes", "while it imported crashes_module"),
        ("threads", "it started the Python thread poller, which does not survive a fork. Import it inside the run"),
    ],
)
def test_a_failed_import_is_told_every_time(modules: str, tmp_path: Path, name: str, message: str) -> None:
    with Zygote(preload=["json", f"{name}_module"], python_path=[modules]) as zygote:
        for _ in range(2):
            with pytest.raises(ZygoteFailed) as caught:
                zygote.start("json:dumps", {}, log=tmp_path / "log")
            assert message in str(caught.value)
            assert caught.value.module == f"{name}_module"
            assert "t5x_harness" not in str(caught.value)
        assert zygote.pid is None


def test_a_missing_module_is_told_by_its_name(tmp_path: Path) -> None:
    with Zygote(preload=["no_such_module"]) as zygote, pytest.raises(ZygoteFailed) as caught:
        zygote.start("json:dumps", {}, log=tmp_path / "log")
    assert str(caught.value) == (
        "Importing no_such_module in the worker process failed:\nModuleNotFoundError: No module named 'no_such_module'"
    )


def test_an_import_that_hangs_meets_its_limit(modules: str, tmp_path: Path, assert_gone: Callable[..., None]) -> None:
    with Zygote(preload=["hangs_module"], python_path=[modules], start_timeout=3.0) as zygote:
        zygote.warm()
        pid = zygote.pid
        with pytest.raises(ZygoteFailed, match="was still importing hangs_module after 3 s"):
            zygote.start("json:dumps", {}, log=tmp_path / "log")
    assert_gone(pid)


def test_a_zygote_that_still_imports_can_be_closed(modules: str, assert_gone: Callable[..., None]) -> None:
    zygote = Zygote(preload=["hangs_module"], python_path=[modules])
    zygote.warm()
    pid = zygote.pid
    zygote.close()
    assert_gone(pid)


def test_nothing_is_started_before_it_is_needed() -> None:
    with Zygote(preload=["hangs_module"]) as zygote:
        assert zygote.pid is None


def test_the_folder_of_the_caller_is_no_place_to_import_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('shadowed')")
    monkeypatch.chdir(tmp_path)
    with Zygote(preload=["json"]) as zygote:
        run = zygote.start("run_objects:Calculator", {}, log=Path("log"), python_path=[str(Path(__file__).parent)])
        assert run.call("echo", value=1) == 1
