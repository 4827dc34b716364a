"""What is wrong with a config, where it is wrong, and the change that fixes it."""

from __future__ import annotations

import dataclasses
import enum

from t5x_harness.spec.choices import Stage
from t5x_harness.system.decode import JsonValue
from t5x_harness.system.shortening import shorten


class Severity(enum.StrEnum):
    """How much a finding matters: an error fails its stage, a warning and a note do not."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclasses.dataclass(frozen=True)
class Location(JsonValue):
    """A line of a file, with the include statements that led to it (outermost first)."""

    file: str
    line: int
    included_from: tuple[Location, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclasses.dataclass(frozen=True)
class Edit(JsonValue):
    """Whole lines of a file, and what to put in their place.

    Attributes:
      file: the file's name as locations show it: relative to the run's working directory, or absolute.
      first: the first line to replace, counted from 1.
      last: the last line to replace; ``first - 1`` to replace none and insert ``text`` in front of line ``first``.
      text: the replacement, in which each line ends with a line feed whatever the file's own line ends are; empty to
        remove the lines.
    """

    file: str
    first: int
    last: int
    text: str


@dataclasses.dataclass(frozen=True)
class Finding(JsonValue):
    """One thing to tell the user: what is wrong, where, and the smallest change that fixes it.

    A message or fix longer than a page is shortened; see :func:`~t5x_harness.system.shortening.shorten`.

    Attributes:
      code: stable id from the failure catalogue, such as ``GIN01``.
      severity: see :class:`Severity`.
      stage: the stage that found it.
      message: what failed, with the values that disagree.
      location: the binding, import or include at fault; None if no line is (say so in the message).
      fix: the smallest fix, as an instruction.
      binding: the full gin name of the binding at fault, such as ``train/utils.DatasetConfig.batch_size``.
      edits: the same fix for a program to make, all of it or none; empty if a person has to decide.
    """

    code: str
    severity: Severity
    stage: Stage
    message: str
    location: Location | None = None
    fix: str | None = None
    binding: str | None = None
    edits: tuple[Edit, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", shorten(self.message))
        if self.fix is not None:
            object.__setattr__(self, "fix", shorten(self.fix))
