"""Context managers that are closed at the end of the block."""

import abc
from typing import Self


class Closing(abc.ABC):
    """A context manager that calls :meth:`close` at its end."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes it. May be called again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
