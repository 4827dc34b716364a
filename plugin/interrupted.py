"""Ctrl-C in a session with runs: they are killed at once, and what is known of them is reported."""

from __future__ import annotations

import pytest

from .session import SESSION

__all__ = ["Interruption"]


class Interruption:
    """Registered as a plugin of its own, because the hook is not given pytest's configuration.

    Where there are jobs, Ctrl-C is theirs: see :class:`t5x_harness.vertex.interrupts.Interrupts`.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)  # before pytest renders the traceback, which takes seconds
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Kills runs; a second Ctrl-C does not spoil what pytest has yet to say."""
        session = self._config.stash[SESSION]
        if not session.in_use or session.promotes:
            return
        session.ending.begin()  # it may have come elsewhere
        if session.begun is not None:
            session.begun.interrupt()
        if type(excinfo.value) is KeyboardInterrupt and not self._config.option.fulltrace:
            excinfo.traceback = excinfo.traceback[-1:]  # all that is shown
