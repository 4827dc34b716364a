"""Ctrl-C that is noted: none is lost, and none is heard in the midst of a block that is to come to its end."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from t5x_harness.vertex.waiting import Interrupts


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    interrupts = Interrupts()
    interrupts.begin()
    yield interrupts
    interrupts.end()


class Interrupting:
    """Is interrupted in its destructor, where Python drops what is raised."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


drops_interrupt = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def in_a_destructor() -> None:
    Interrupting()


def where_all_is_caught() -> None:
    with contextlib.suppress(BaseException):
        signal.raise_signal(signal.SIGINT)


@drops_interrupt
@pytest.mark.parametrize("dropped", [in_a_destructor, where_all_is_caught])
def test_an_interrupt_that_was_dropped_is_heard_until_it_is_acted_upon(
    interrupts: Interrupts, dropped: Callable[[], None]
) -> None:
    interrupts.raise_pending()
    dropped()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            interrupts.raise_pending()
    interrupts.forget()
    interrupts.raise_pending()
    dropped()
    with pytest.raises(KeyboardInterrupt):
        interrupts.raise_pending()


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_is_raised_where_it_arrives() -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_waits_for_the_end_of_the_block(interrupts: Interrupts) -> None:
    done = []

    def send() -> None:
        with interrupts.held():
            signal.raise_signal(signal.SIGINT)
            done.append("sent")

    with pytest.raises(KeyboardInterrupt):
        send()
    assert done == ["sent"]


@drops_interrupt
def test_nothing_is_begun_after_an_interrupt_that_was_dropped(interrupts: Interrupts) -> None:
    done = []
    in_a_destructor()
    with pytest.raises(KeyboardInterrupt), interrupts.held():
        done.append("sent")
    assert done == []


def test_an_error_in_the_block_is_raised(interrupts: Interrupts) -> None:
    with pytest.raises(ValueError, match="refused"), interrupts.held():
        raise ValueError("refused")
    with pytest.raises(KeyboardInterrupt):  # at once, as before the block
        signal.raise_signal(signal.SIGINT)


def test_a_handler_that_raises_nothing_hears_each_interrupt_once(interrupts: Interrupts) -> None:
    heard: list[int] = []
    interrupts.end()
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    interrupts.begin()
    signal.raise_signal(signal.SIGINT)
    interrupts.raise_pending()
    with interrupts.held():
        signal.raise_signal(signal.SIGINT)
        assert heard == [signal.SIGINT]
    interrupts.raise_pending()
    assert heard == [signal.SIGINT, signal.SIGINT]


def test_afterwards_interrupts_are_handled_as_before(interrupts: Interrupts) -> None:
    interrupts.begin()
    interrupts.end()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    interrupts.end()


def test_a_handler_that_came_later_stays(interrupts: Interrupts) -> None:
    def of_a_debugger(number: int, frame: object) -> None: ...

    signal.signal(signal.SIGINT, of_a_debugger)
    interrupts.end()
    assert signal.getsignal(signal.SIGINT) is of_a_debugger


def test_where_interrupts_are_ignored_they_stay_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupts = Interrupts()
    interrupts.begin()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_leave_the_handler_alone() -> None:
    seen = []

    def look() -> None:
        interrupts = Interrupts()
        interrupts.begin()
        with interrupts.held():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
