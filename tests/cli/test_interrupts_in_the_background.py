"""A command that a script starts with ``&`` is ended by SIGINT as any other, and one of nohup is not."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from t5x_harness.system.processes import handle_interrupts


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("interrupt", "hangup", "then"),
    [
        (signal.SIG_IGN, signal.SIG_DFL, signal.default_int_handler),
        (signal.SIG_IGN, signal.SIG_IGN, signal.SIG_IGN),
        (signal.SIG_DFL, signal.SIG_DFL, signal.SIG_DFL),
    ],
)
def test_what_a_shell_ignored_for_its_own_sake_is_handled(interrupt: Any, hangup: Any, then: Any) -> None:
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGHUP, hangup)
    handle_interrupts()
    assert signal.getsignal(signal.SIGINT) is then
