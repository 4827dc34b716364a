"""Progress rewrites one line on a terminal and prints few lines elsewhere."""

import io
import itertools

import pytest

from t5x_harness.workers.progress import ProgressPrinter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_a_log_gets_the_beginning_the_end_and_a_sign_of_life() -> None:
    stream, clock = io.StringIO(), Clock()
    with ProgressPrinter(stream, label="a.gin", env={}, clock=clock) as progress:
        for step in range(1, 101):
            progress({"stage": "train", "step": step, "of": 100})
            clock.now += 1
        progress({"stage": "eval", "note": "compiling"})
    assert stream.getvalue().splitlines() == [
        "a.gin  train  step 1 of 100  0:00",
        "a.gin  train  step 31 of 100  0:30",
        "a.gin  train  step 61 of 100  1:00",
        "a.gin  train  step 91 of 100  1:30",
        "a.gin  train  step 100 of 100  1:39",
        "a.gin  eval  0:00  compiling",
    ]


def test_a_terminal_has_one_line_which_goes_at_the_end() -> None:
    stream, clock = Terminal(), Clock()
    with ProgressPrinter(stream, env={"NO_COLOR": "1"}, clock=clock) as progress:
        progress({"stage": "train", "step": 1, "of": 3})
        clock.now = 0.01
        progress({"stage": "train", "step": 2, "of": 3})
        clock.now = 3700
        progress({"step": 3, "of": 3})
    shown = stream.getvalue().split("\r\x1b[2K")
    assert shown == ["", "train  step 1 of 3  0:00", "train  step 3 of 3  1:01:40", ""]
    assert "\n" not in stream.getvalue()


def test_the_stage_stands_out_in_colour() -> None:
    stream = Terminal()
    ProgressPrinter(stream, label="train", env={})({"stage": "train"})
    assert "train  \x1b[1mtrain\x1b[0m  0:00" in stream.getvalue()


def test_a_long_line_is_cut_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream = Terminal()
    ProgressPrinter(stream, env={"NO_COLOR": "1"})({"stage": "train", "note": "n" * 100})
    assert len(stream.getvalue().removeprefix("\r\x1b[2K")) == 19


def test_a_dumb_terminal_is_a_log() -> None:
    stream = Terminal()
    with ProgressPrinter(stream, env={"TERM": "dumb"}) as progress:
        progress({"stage": "train"})
    assert stream.getvalue() == "train  0:00\n"


def test_nothing_that_moves_the_cursor_gets_through() -> None:
    stream = io.StringIO()
    ProgressPrinter(stream, label="a\nb", env={})({"stage": "x\x1b[2J", "note": "\r\x07n"})
    assert stream.getvalue() == "a b  x [2J  0:00  n\n"


def test_every_key_may_be_missing() -> None:
    keys = {"stage": "train", "step": 1, "of": 2, "note": "n"}
    for count in range(len(keys) + 1):
        for some in itertools.combinations(keys.items(), count):
            stream = io.StringIO()
            ProgressPrinter(stream, env={})(dict(some))
            assert stream.getvalue().endswith("\n")


def test_nothing_is_printed_without_events() -> None:
    stream = Terminal()
    with ProgressPrinter(stream, env={}):
        pass
    assert stream.getvalue() == ""
