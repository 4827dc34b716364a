"""Ctrl-C while a job is being sent."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from t5x_harness.promotion.interrupts import interrupts_held


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    done = []

    def send() -> None:
        with interrupts_held():
            signal.raise_signal(signal.SIGINT)
            done.append("sent")

    with pytest.raises(KeyboardInterrupt):
        send()
    assert done == ["sent"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_an_interrupt_nothing_happens() -> None:
    with interrupts_held():
        pass
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_error_in_the_block_is_raised() -> None:
    with pytest.raises(ValueError, match="refused"), interrupts_held():
        raise ValueError("refused")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_leave_the_handler_alone() -> None:
    seen = []

    def look() -> None:
        with interrupts_held():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
