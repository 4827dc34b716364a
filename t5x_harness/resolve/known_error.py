"""One exception text that the failure catalog knows."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class KnownError:
    """A pattern of exception texts, and the message to show instead.

    Attributes:
      code: the code of the broken rule.
      pattern: a regular expression; the first one in the table that matches a text wins.
      message: what is wrong; ``{1}`` stands for the pattern's first group.
      fix: the fix, written the same way.
    """

    code: str
    pattern: str
    message: str
    fix: str
