"""What the reader could not make sense of; the rules turn these into findings."""

from __future__ import annotations

import dataclasses
import enum

from t5x_harness.spec import Location

__all__ = ["Problem", "ProblemKind"]


class ProblemKind(enum.Enum):
    """What went wrong while reading."""

    SYNTAX = enum.auto()
    MISSING_FILE = enum.auto()
    NOT_A_PACKAGE = enum.auto()
    UNREADABLE_FILE = enum.auto()
    INCLUDE_CYCLE = enum.auto()
    MISSING_MODULE = enum.auto()
    LATE_REGISTRATION = enum.auto()
    BAD_IMPORT = enum.auto()
    SYMBOL_NOT_IMPORTED = enum.auto()
    UNKNOWN_SELECTOR = enum.auto()
    AMBIGUOUS_SELECTOR = enum.auto()


_LOSES_STATEMENTS = frozenset(
    {
        ProblemKind.SYNTAX,
        ProblemKind.MISSING_FILE,
        ProblemKind.NOT_A_PACKAGE,
        ProblemKind.UNREADABLE_FILE,
        ProblemKind.INCLUDE_CYCLE,
    }
)


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing that stops T5X from reading the config.

    Attributes:
      kind: see :class:`ProblemKind`.
      location: where.
      subject: the file, module, selector or line of text that is at fault.
      detail: more about it, such as the parser's own words.
      names: what helps to mend it: the places searched, the names that match.
    """

    kind: ProblemKind
    location: Location
    subject: str
    detail: str = ""
    names: tuple[str, ...] = ()

    @property
    def loses_statements(self) -> bool:
        """Whether statements are unknown because of it, so that nothing can be said about the whole config."""
        return self.kind in _LOSES_STATEMENTS
