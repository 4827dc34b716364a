"""Zygotes that are kept for other sessions, each of which imports anew what the one before it had outdated."""

from collections.abc import Callable
from pathlib import Path

from t5x_harness.system.closing import Closing
from t5x_harness.workers.keeping import show
from t5x_harness.workers.zygote import Zygote


class WarmZygotes(Closing):
    """Keeps a zygote for other sessions, and replaced zygotes as long as sessions use them; a context manager.

    Args:
      folder: the folder for sockets, which only this user can access.
      make: a function that builds a zygote that listens at a path.

    Attributes:
      socket_path: the path where sessions find the newest zygote that is ready.
    """

    def __init__(self, folder: Path, make: Callable[[Path], Zygote]) -> None:
        self.socket_path = folder / "socket"
        self._make = make
        self._number = 0
        self._newest: Zygote | None = None
        self._retired: list[Zygote] = []

    def close(self) -> None:
        """Ends all zygotes."""
        for zygote in (*self._retired, *([self._newest] if self._newest else [])):
            zygote.close()

    @property
    def has_ended(self) -> bool:
        """Whether the zygote for new sessions is gone."""
        return self._newest is None or self._newest.has_ended

    def renew(self) -> None:
        """Starts a new zygote, which takes over the path once it is ready; the old one ends with its last session.

        Raises:
          ZygoteFailed: the imports failed; the old zygote keeps the path.
        """
        self._number += 1
        path = self.socket_path.with_name(str(self._number))
        zygote = self._make(path)
        try:
            zygote.await_ready()
            show(path, self.socket_path)
        except BaseException:
            zygote.close()
            raise
        if self._newest is not None:
            self._newest.retire()
            self._retired.append(self._newest)
        self._newest = zygote

    def take_changed_file(self) -> str:
        """Returns an imported file that a session has found changed since the last call; empty if none was."""
        for zygote in [zygote for zygote in self._retired if zygote.has_ended]:
            self._retired.remove(zygote)
            zygote.close()
        return "" if self._newest is None else self._newest.take_changed_file()
