"""Shows the progress of a run on a terminal or in a CI log."""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from t5x_harness.system.closing import Closing

# A person reads no faster; a log is read afterwards.
TERMINAL_SECONDS = 0.1
PLAIN_SECONDS = 30.0

CLEAR_LINE = "\r\x1b[2K"
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


class ProgressPrinter(Closing):
    """Prints progress events; a context manager that is passed as ``on_progress``.

    On a terminal it rewrites one line, and removes it at the end. Elsewhere it prints a line when a stage begins, when
    it reaches its last step, when its note changes, and every 30 s in between. ``NO_COLOR`` turns colors off.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        label: str = "",
        env: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prints nothing yet.

        Args:
          stream: the stream to print to.
          label: the name of the run; every line begins with it.
          env: the environment variables to read (``NO_COLOR``, ``TERM``); this process's by default.
          clock: a function that returns seconds.
        """
        env = os.environ if env is None else env
        self._stream = stream
        self._label = _one_line(label)
        self._clock = clock
        self._rewrites = stream.isatty() and env.get("TERM", "") != "dumb"
        self._colour = self._rewrites and not env.get("NO_COLOR")
        self._stage: str | None = None
        self._stage_began = 0.0
        self._printed = 0.0
        self._shown = False
        self._note = ""

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Shows one event, such as ``{"stage": "train", "step": 3, "of": 8, "note": ""}``; every key may be missing."""
        now = self._clock()
        stage = _one_line(str(event.get("stage") or self._stage or "run"))
        begins = stage != self._stage
        if begins:
            self._stage, self._stage_began = stage, now
        step, of = event.get("step"), event.get("of")
        is_last = step is not None and step == of
        pause = TERMINAL_SECONDS if self._rewrites else PLAIN_SECONDS
        note = _one_line(str(event.get("note") or ""))
        if begins or is_last or note != self._note or now - self._printed >= pause:
            self._printed, self._note = now, note
            self._print(stage, step, of, note, now - self._stage_began)

    def close(self) -> None:
        """Removes the rewritten line, so that the next output starts on an empty line."""
        if self._shown:
            self._stream.write(CLEAR_LINE)
            self._stream.flush()
            self._shown = False

    def _print(self, stage: str, step: object, of: object, note: str, elapsed: float) -> None:
        count = "" if step is None else f"step {step}" if of is None else f"step {step} of {of}"
        parts = [part for part in (self._label, stage, count, _duration(elapsed), note) if part]
        if not self._rewrites:
            self._stream.write("  ".join(parts) + "\n")
        else:
            # One column remains free, because some terminals wrap when the last one is used.
            text = "  ".join(parts)[: max(1, shutil.get_terminal_size().columns - 1)]
            before = len(self._label) + 2 if self._label else 0
            after = before + len(stage)
            if self._colour and after <= len(text):
                text = f"{text[:before]}{BOLD}{stage}{PLAIN}{text[after:]}"
            self._stream.write(CLEAR_LINE + text)
            self._shown = True
        self._stream.flush()


class InlineProgress:
    """Shows the last progress event after the text on a terminal's line, such as the dots of tests.

    Args:
      write: a function that writes to the terminal, unnoticed by pytest's reporter.
      watched: whether a person watches the terminal; otherwise only :meth:`say` writes.
    """

    def __init__(self, write: Callable[[str], None], *, watched: bool) -> None:
        self._write = write
        self._watched = watched
        self._shown = 0

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Shows one event, in the form that :meth:`ProgressPrinter.__call__` takes."""
        if self._watched:
            step, of = event.get("step"), event.get("of")
            count = "" if step is None else f"step {step}/{of}" if of else f"step {step}"
            self._rewrite(f" [{' '.join(filter(None, (event.get('stage'), count, event.get('note'))))}]")

    def clear(self) -> None:
        """Removes the text that was shown."""
        if self._shown:
            self._rewrite("")

    def say(self, text: str) -> None:
        """Writes a separate line, even if nobody watches."""
        self.clear()
        self._write(f"{text}\n")

    def _rewrite(self, text: str) -> None:
        # Backspaces, not a carriage return, so that earlier text on the line remains.
        padding = " " * max(0, self._shown - len(text))
        self._write("\b" * self._shown + text + padding + "\b" * len(padding))
        self._shown = len(text)


def _duration(seconds: float) -> str:
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def _one_line(text: str) -> str:
    """Replaces characters that would move the cursor."""
    return "".join(character if character.isprintable() else " " for character in text).strip()
