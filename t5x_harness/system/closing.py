"""What is closed at the end of its ``with`` block."""

from __future__ import annotations

import abc
from typing import Self


class Closing(abc.ABC):
    """A context manager whose end is :meth:`close`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends it. May be called again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
