"""Progress of a long stage on pytest's terminal, past its capturing of output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ._pytest_internals import write_past_line


class TerminalProgress:
    """Takes a run's progress events and shows the last one in place; silent where no person watches a terminal."""

    def __init__(self, config: pytest.Config) -> None:
        self._reporter = config.pluginmanager.getplugin("terminalreporter")
        self._capture = config.pluginmanager.getplugin("capturemanager")
        self._shown = 0
        self._active = bool(self._reporter is not None and self._reporter.isatty and config.get_verbosity() >= 0)

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Shows ``event``: keys ``stage``, ``step``, ``of`` and ``note``, all optional."""
        if not self._active:
            return
        text = " ".join(str(part) for part in (event.get("stage"), _count(event), event.get("note")) if part)
        self._rewrite(f" [{text}]")

    def clear(self) -> None:
        """Removes what was shown."""
        if self._shown:
            self._rewrite("")

    def say(self, text: str) -> None:
        """Writes a line of its own, also where no person watches."""
        self.clear()
        with self._capture.global_and_fixture_disabled():
            write_past_line(self._reporter, f"{text}\n")

    def _rewrite(self, text: str) -> None:
        # Backspaces, not a carriage return: the node id or the dots of earlier tests stand on the same line.
        erase = "\b" * self._shown
        padding = " " * max(0, self._shown - len(text))
        with self._capture.global_and_fixture_disabled():
            write_past_line(self._reporter, erase + text + padding + "\b" * len(padding))
        self._shown = len(text)


def _count(event: Mapping[str, Any]) -> str:
    if event.get("step") is None:
        return ""
    return f"step {event['step']}/{event['of']}" if event.get("of") else f"step {event['step']}"
