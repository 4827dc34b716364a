"""The last exception of each host in a log: what it says, with its causes, and where it was raised."""

import dataclasses
import re

from t5x_harness.symptoms.log_lines import LogLine

_BEGIN = "Traceback (most recent call last)"
_ENDS = "t5x: error: "
"""The beginning of a message with which the embedded T5X ends without a traceback."""

_CHAIN = ("The above exception was the direct cause", "During handling of the above exception")
_IGNORED = "Exception ignored in"
_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')
_LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python3|^<")
_PACKAGE = re.compile(r"[/\\](?:(?:site|dist)-packages[/\\](?P<installed>\w+)|(?P<checkout>t5x)[/\\])")
"""The package of a file, as Python's and IPython's tracebacks name files; T5X is often run from a checkout."""

_NAME = re.compile(r"(?:\w+\.)*\w+(?::|$)")
_MOST_LINES = 30
_MOST_CAUSES = 20
_MOST_KEPT = 2400
"""The most lines of an exception's text that are kept, exceptions of a chain, and characters of a line."""


@dataclasses.dataclass
class LoggedException:
    """An exception whose traceback is in a log.

    Attributes:
      line: its first line, with its class.
      texts: its text and before it those of the exceptions that caused it, oldest first, each with its class.
      place: the file and line of the last frame outside of libraries, or else of the last frame; empty if unknown.
      last: what its host logged last as it went on.
      steps: how many lines of progress its host logged since.
    """

    line: LogLine
    texts: list[str]
    place: str = ""
    last: str = ""
    steps: int = 0


class TracebackReader:
    """Reads the lines of one host, and keeps its last exception.

    Attributes:
      last: the last exception; None if there was none.
      in_frames: whether a traceback has begun and its exception is still to come.
      package: the package whose file raised the last exception; empty if its traceback names none.
    """

    def __init__(self) -> None:
        self.last: LoggedException | None = None
        self.in_frames = self._in_text = self._is_ignored = False
        self._earlier: list[str] = []
        self._own = self._any = self.package = ""
        self._left = 0

    def read(self, line: LogLine, last: str) -> None:
        """Reads the next line, and keeps ``last`` if it ends a traceback."""
        text = line.text
        if not (self.in_frames or self._in_text or _BEGIN in text or text.startswith((_IGNORED, _ENDS))):
            return
        if text.startswith(_IGNORED):
            self._is_ignored = True
        elif text.startswith(_ENDS):
            self._earlier = []
            self._end(line, text.removeprefix(_ENDS), "", last)
        elif _BEGIN in text:
            self.in_frames, self._in_text = not self._is_ignored, False
            self._is_ignored, self._own, self._any, self.package = False, "", "", ""
        elif self.in_frames:
            self._read_frame(line, last)
        elif self._in_text and self.last:
            self._read_text(line, self.last)

    def _read_frame(self, line: LogLine, last: str) -> None:
        if frame := _FRAME.match(line.text):
            self._any = f"{frame['file']}:{frame['line']}"
            self._own = self._own if _LIBRARY.search(frame["file"]) else self._any
        elif line.text and not line.text[0].isspace() and not line.time and _NAME.match(line.text):
            self._end(line, line.text, self._own or self._any, last)
            return
        if named := _PACKAGE.search(line.text):
            self.package = named["installed"] or named["checkout"]

    def _end(self, line: LogLine, text: str, place: str, last: str) -> None:
        kept = dataclasses.replace(line, text=line.text[:_MOST_KEPT])
        self.last = LoggedException(kept, [*self._earlier[-_MOST_CAUSES:], text[:_MOST_KEPT]], place, last)
        self._earlier = []
        self.in_frames, self._in_text, self._left = False, True, _MOST_LINES

    def _read_text(self, line: LogLine, last: LoggedException) -> None:
        if line.text.startswith(_CHAIN):
            self._earlier, self._in_text = last.texts, False
        elif line.time or not self._left:
            self._in_text = False
        else:
            self._left -= 1
            last.texts[-1] += f"\n{line.text[:_MOST_KEPT]}"
