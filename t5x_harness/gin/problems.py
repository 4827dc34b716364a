"""Problems that the reader met in a config; the rules turn them into findings."""

import dataclasses
import enum

from t5x_harness.spec import Location


class ProblemKind(enum.Enum):
    """Kinds of problems while reading, in words.

    Only ``UNREACHABLE_FILE`` is not a mistake: the file is in a bucket that this machine cannot reach, and no rule
    may make a finding of it.
    """

    SYNTAX = "syntax error"
    MISSING_FILE = "no such gin file"
    NOT_A_PACKAGE = "folder without __init__.py"
    UNREADABLE_FILE = "unreadable file"
    UNREACHABLE_FILE = "gin file out of reach"
    INCLUDE_CYCLE = "includes go round in a circle"
    MISSING_MODULE = "no such module"
    LATE_REGISTRATION = "late dynamic registration"
    REPEATED_REGISTRATION = "second dynamic registration"
    BAD_IMPORT = "impossible import"
    SYMBOL_NOT_IMPORTED = "symbol not imported"
    UNKNOWN_SELECTOR = "no such configurable"
    AMBIGUOUS_SELECTOR = "ambiguous name"


_LOSES_STATEMENTS = frozenset(
    {
        ProblemKind.SYNTAX,
        ProblemKind.MISSING_FILE,
        ProblemKind.NOT_A_PACKAGE,
        ProblemKind.UNREADABLE_FILE,
        ProblemKind.UNREACHABLE_FILE,
        ProblemKind.INCLUDE_CYCLE,
    }
)


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing that stops T5X from reading the config.

    Attributes:
      kind: see :class:`ProblemKind`.
      location: its place; line 0 means a file that the user named, which no line includes.
      subject: the file, module, selector or line of text that is at fault.
      detail: details, such as the parser's message.
      names: names that help to fix it, such as the places searched or the names that match.
    """

    kind: ProblemKind
    location: Location
    subject: str
    detail: str = ""
    names: tuple[str, ...] = ()

    @property
    def named_by_user(self) -> bool:
        """Whether the user named the file at fault, so that there is no line to point at."""
        return self.location.line == 0

    @property
    def loses_statements(self) -> bool:
        """Whether statements are unknown because of it, so that the whole config cannot be judged."""
        return self.kind in _LOSES_STATEMENTS
