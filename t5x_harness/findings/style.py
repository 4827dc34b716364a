"""Terminal colours, or none."""

from __future__ import annotations

import dataclasses

_CODES = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}


@dataclasses.dataclass(frozen=True)
class Style:
    """Colours text; ``Style(False)`` leaves it as it is."""

    enabled: bool = False

    def tone(self, name: str, text: str) -> str:
        """Text in one of red, green, yellow, cyan, bold and dim."""
        return f"\x1b[{_CODES[name]}m{text}\x1b[0m" if self.enabled else text

    def bold(self, text: str) -> str:
        """Bold text."""
        return self.tone("bold", text)
