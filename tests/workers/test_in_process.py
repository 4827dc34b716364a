"""Runs in the caller's own process behave like forked ones, except that a debugger can look into them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from t5x_harness.workers import InProcess, RunProcess, RunRaised

HERE = str(Path(__file__).parent)


@pytest.fixture
def run(tmp_path: Path) -> RunProcess:
    return InProcess().start(
        "run_objects:Calculator",
        {"x": (1, 2)},
        log=tmp_path / "log",
        cwd=tmp_path,
        env={"OWN": "1", "HOME": None},
        python_path=[HERE],
    )


def test_values_make_the_same_trip(run: RunProcess) -> None:
    assert run.call("given") == {"x": [1, 2]}
    assert run.call("echo", value=(1, "a")) == [1, "a"]


def test_progress_is_delivered(run: RunProcess) -> None:
    events: list[object] = []
    assert run.call("count", to=2, on_progress=events.append) == 2
    assert events == [{"stage": "count", "step": 1, "of": 2}, {"stage": "count", "step": 2, "of": 2}]


def test_surroundings_are_in_force_during_a_call_only(run: RunProcess, tmp_path: Path) -> None:
    before = os.getcwd(), dict(os.environ), list(sys.path)
    found = run.call("surroundings")
    assert found["pid"] == run.pid == os.getpid()
    assert found["cwd"] == str(tmp_path)
    assert found["env"]["OWN"] == "1"
    assert "HOME" not in found["env"]
    assert found["path"][0] == HERE
    assert (os.getcwd(), dict(os.environ), list(sys.path)) == before


def test_exceptions_pass_as_they_are(run: RunProcess) -> None:
    before = os.getcwd()
    with pytest.raises(ValueError, match=r"^no such split$"):
        run.call("fail", message="no such split")
    assert os.getcwd() == before
    broken = InProcess().start("run_objects:broken", {"thing": "x"}, log=Path("log"), python_path=[HERE])
    with pytest.raises(LookupError, match="no such thing as x"):
        broken.call("echo")


def test_output_goes_to_the_terminal(run: RunProcess, capfd: pytest.CaptureFixture[str]) -> None:
    run.call("write", text="here")
    assert "descriptor here" in capfd.readouterr().out
    assert not run.log.exists()


def test_a_reply_that_is_no_json_is_told_alike(run: RunProcess) -> None:
    with pytest.raises(RunRaised, match=r"unserialisable\(\) returned a dict that JSON cannot carry: set at"):
        run.call("unserialisable")
    with pytest.raises(TypeError, match="only JSON values can be sent"):
        run.call("echo", value={1})


def test_a_closed_run_says_so(run: RunProcess) -> None:
    with InProcess(), run:
        run.call("echo")
    with pytest.raises(RuntimeError, match=r"echo\(\) cannot be called: the run was closed"):
        run.call("echo")
