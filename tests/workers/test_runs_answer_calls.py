"""A run answers calls, in a process of its own that is like a fresh one or, for a debugger, in the caller's."""

import concurrent.futures
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from t5x_harness.workers.errors import RunRaised
from t5x_harness.workers.in_process import InProcess
from t5x_harness.workers.run import RunProcess
from t5x_harness.workers.zygote import Zygote

HERE = str(Path(__file__).parent)
Start = Callable[..., RunProcess]


VALUES = [None, True, 3, 0.1, float("nan"), float("-inf"), "ü\ud800\0", [1, [2]], {"a": {"b": [None]}}]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back_as_they_went(start: Start, value: object) -> None:
    assert repr(start().call("echo", value=value)) == repr(value)


def test_large_values_pass_both_ways(start: Start) -> None:
    run = start(text="z" * 3_000_000)
    assert run.call("given") == {"text": "z" * 3_000_000}
    assert len(run.call("blob", size=8_000_000)) == 8_000_000
    sent = "y" * 8_000_000
    assert run.call("echo", value=sent) == sent


def test_progress_arrives_in_order_before_the_result(start: Start) -> None:
    events: list[object] = []
    assert start().call("count", to=100, on_progress=events.append) == 100
    assert events == [{"stage": "count", "step": step, "of": 100} for step in range(1, 101)]


def test_the_factory_reports_to_the_first_call(start: Start) -> None:
    events: list[object] = []
    run = start("run_objects:slow", seconds=0)
    run.call("echo", on_progress=events.append)
    run.call("echo", on_progress=events.append)
    assert events == [{"stage": "prepare"}]


def test_runs_work_at_the_same_time(start: Start) -> None:
    runs = [start(number=number) for number in range(5)]
    assert len({run.pid for run in runs}) == 5
    with concurrent.futures.ThreadPoolExecutor(5) as threads:
        answers = list(threads.map(lambda run: run.call("given")["number"], runs))
    assert answers == list(range(5))


def test_all_output_is_in_the_log_when_the_call_returns(start: Start) -> None:
    run = start()
    run.call("write", text="one")
    lines = set(run.log.read_text().splitlines())
    assert lines >= {"python one", "error one", "descriptor one", "native one"}


def test_a_log_is_appended_to_and_its_folder_made(zygote: Zygote, tmp_path: Path) -> None:
    log = tmp_path / "new" / "folder" / "run.log"
    for text in ("first", "second"):
        with zygote.start("run_objects:Calculator", {}, log=log, python_path=[HERE]) as run:
            run.call("write", text=text)
    assert "python first" in log.read_text()
    assert "python second" in log.read_text()


def test_folder_environment_and_path_are_the_runs_own(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zygote.warm()
    monkeypatch.setenv("SET_AFTER_THE_ZYGOTE", "1")
    monkeypatch.setenv("TAKEN_OUT", "1")
    with zygote.start(
        "run_objects:Calculator",
        {},
        log=tmp_path / "run.log",
        cwd=tmp_path,
        env={"OWN": "2", "TAKEN_OUT": None},
        python_path=[HERE],
    ) as run:
        found = run.call("surroundings")
    assert found["pid"] == found["session"] == found["group"] == run.pid != os.getpid()
    assert found["cwd"] == str(tmp_path)
    assert found["path"][0] == HERE
    assert found["stdin"] == "/dev/null"
    assert found["env"]["SET_AFTER_THE_ZYGOTE"] == "1"
    assert found["env"]["OWN"] == "2"
    assert "TAKEN_OUT" not in found["env"]
    assert "OWN" not in os.environ


def test_a_run_has_no_descriptor_but_its_streams_and_its_connection(start: Start) -> None:
    run, other = start(), start()
    found = run.call("descriptors")
    extra = [target for name, target in found.items() if int(name) > 2]
    assert len(extra) == 1, found
    assert extra[0].startswith("socket:")
    assert found["1"] == found["2"] == str(run.log)
    other.call("echo")


@pytest.mark.usefixtures("zygote")
def test_signals_are_those_of_a_fresh_process(tmp_path: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    try:
        with (
            Zygote() as blocked,
            blocked.start("run_objects:Calculator", {}, log=tmp_path / "run.log", python_path=[HERE]) as run,
        ):
            assert run.call("signals") == {"blocked": 0, "handled": []}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_no_depth_of_the_stack_makes_calls_slow(start: Start) -> None:
    """CPython requests memory from the kernel for every call that crosses the end of a piece of its stack."""
    calls = 300
    assert max(start().call("page_faults_of_calls", calls=calls, depths=600)) < calls / 2


def test_background_work_is_finished_when_a_run_is_closed(start: Start, tmp_path: Path) -> None:
    run = start()
    run.call("write_later", path=str(tmp_path / "later"))
    run.close()
    assert (tmp_path / "later").read_text() == "written"


@pytest.mark.parametrize("factory", ["run_objects", "run_objects:", ":Calculator", "run_objects.Calculator"])
def test_a_factory_is_written_with_a_colon(start: Start, factory: str) -> None:
    with pytest.raises(ValueError, match=r"a factory is written as package\.module:callable, not "):
        start(factory)


def test_arguments_must_be_json(start: Start) -> None:
    with pytest.raises(TypeError, match=r"echo\(\) cannot be called with set at value\['a'\]\[1\]: only JSON values"):
        start().call("echo", value={"a": [0, {1}]})
    with pytest.raises(TypeError, match=r"run_objects:Calculator cannot be called with PosixPath at argument\['p'\]"):
        start(p=Path("x"))


def test_a_log_that_cannot_be_written_is_an_os_error(zygote: Zygote, tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        zygote.start("run_objects:Calculator", {}, log=tmp_path)


def test_a_closed_zygote_says_so(tmp_path: Path) -> None:
    zygote = Zygote()
    zygote.close()
    zygote.close()
    with pytest.raises(RuntimeError, match="this zygote was closed"):
        zygote.start("run_objects:Calculator", {}, log=tmp_path / "log")


def test_the_example_in_the_docs_runs(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (repository / "docs" / "workers.md").read_text(), re.DOTALL)
    module, program = blocks
    (tmp_path / "my_runs.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "docs/workers.md", "exec"), {})
    assert capsys.readouterr().out.splitlines()[-1] == "{'stage': 'count', 'step': 8, 'of': 8}"


@pytest.fixture
def run_here(tmp_path: Path) -> RunProcess:
    return InProcess().start(
        "run_objects:Calculator",
        {"x": (1, 2)},
        log=tmp_path / "log",
        cwd=tmp_path,
        env={"OWN": "1", "HOME": None},
        python_path=[HERE],
    )


def test_values_and_progress_make_the_same_trip_here(run_here: RunProcess) -> None:
    assert run_here.call("given") == {"x": [1, 2]}
    assert run_here.call("echo", value=(1, "a")) == [1, "a"]
    events: list[object] = []
    assert run_here.call("count", to=2, on_progress=events.append) == 2
    assert events == [{"stage": "count", "step": 1, "of": 2}, {"stage": "count", "step": 2, "of": 2}]


def test_surroundings_here_are_in_force_during_a_call_only(run_here: RunProcess, tmp_path: Path) -> None:
    before = os.getcwd(), dict(os.environ), list(sys.path)
    found = run_here.call("surroundings")
    assert found["pid"] == run_here.pid == os.getpid()
    assert found["cwd"] == str(tmp_path)
    assert found["env"]["OWN"] == "1"
    assert "HOME" not in found["env"]
    assert found["path"][0] == HERE
    assert (os.getcwd(), dict(os.environ), list(sys.path)) == before


def test_exceptions_here_pass_as_they_are(run_here: RunProcess) -> None:
    before = os.getcwd()
    with pytest.raises(ValueError, match=r"^no such split$"):
        run_here.call("fail", message="no such split")
    assert os.getcwd() == before
    broken = InProcess().start("run_objects:broken", {"thing": "x"}, log=Path("log"), python_path=[HERE])
    with pytest.raises(LookupError, match="no such thing as x"):
        broken.call("echo")


def test_output_here_goes_to_the_terminal(run_here: RunProcess, capfd: pytest.CaptureFixture[str]) -> None:
    run_here.call("write", text="here")
    assert "descriptor here" in capfd.readouterr().out
    assert not run_here.log.exists()


def test_a_reply_that_is_no_json_is_told_alike(run_here: RunProcess) -> None:
    with pytest.raises(RunRaised, match=r"unserialisable\(\) returned a dict that JSON cannot carry: set at"):
        run_here.call("unserialisable")
    with pytest.raises(TypeError, match="only JSON values can be sent"):
        run_here.call("echo", value={1})


def test_a_closed_run_here_says_so(run_here: RunProcess) -> None:
    with InProcess(), run_here:
        run_here.call("echo")
    with pytest.raises(RuntimeError, match=r"echo\(\) cannot be called: the run was closed"):
        run_here.call("echo")
