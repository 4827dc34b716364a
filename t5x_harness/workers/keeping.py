"""The place where a session leaves its worker for the next session of the same user, environment and project.

A worker that is left serves the sessions that begin within 15 minutes; see :mod:`t5x_harness.workers.kept_process`. It
can be killed at any moment: a session that does not reach it makes its own imports.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import secrets
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from t5x_harness.system.own_folders import foreign_folder
from t5x_harness.system.texts import is_off, is_on
from t5x_harness.variables import KEEP_VARIABLE
from t5x_harness.version import ORIGIN
from t5x_harness.workers import framing
from t5x_harness.workers.hosts import WarmHost

KEEP_SECONDS = 15 * 60.0
"""How long a worker waits for the next session."""

_ANSWER_SECONDS = 5.0


def keeps(environment: Mapping[str, str]) -> bool:
    """Returns whether sessions leave their workers: not in CI, whose machines nobody comes back to.

    If the user's choice cannot be understood, they leave none, and a warning says so.
    """
    chosen = environment.get(KEEP_VARIABLE, "")
    if not chosen:
        return is_off(environment.get("CI", ""))
    try:
        return is_on(chosen)
    except ValueError as error:
        warnings.warn(f"{KEEP_VARIABLE} {error}; the process that has imported T5X ends with this call", stacklevel=2)
        return False


def _root() -> Path:
    return Path(tempfile.gettempdir()).resolve() / f"t5x-harness-workers-{os.getuid()}"


@dataclasses.dataclass(frozen=True)
class KeptPlace:
    """A folder with the socket of one worker that was left; of others, for the moment in which they are replaced.

    Attributes:
      folder: the folder, which only this user can access once it is there.
    """

    folder: Path

    @classmethod
    def find(cls, environment: Mapping[str, str], *facts: str) -> "KeptPlace | None":
        """Returns the place for these facts and this interpreter; None if nothing may be left.

        Args:
          environment: the variables of this process.
          facts: what else tells workers apart: the T5X that they import, and the project.
        """
        root = _root()
        if not keeps(environment) or (root.exists() and foreign_folder(root)):
            return None
        known = (sys.prefix, os.path.realpath(sys.executable), os.path.realpath(ORIGIN), *facts)
        return cls(root / hashlib.sha256(repr(known).encode()).hexdigest()[:16])

    @property
    def socket_path(self) -> Path:
        """The path at which sessions find the worker; a link to its socket."""
        return self.folder / "socket"

    def new_path(self) -> Path:
        """Returns the path for the socket of a worker that may be left later.

        Raises:
          OSError: the folder cannot be made, or others could write to it.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.parent.chmod(0o700)
        if reason := foreign_folder(self.folder):
            raise PermissionError(reason)
        return self.folder / f"{os.getpid()}-{secrets.token_hex(4)}"

    @contextlib.contextmanager
    def replacing(self, path: Path) -> Iterator[None]:
        """Shows sessions the worker at a path once the block has made it stay, and ends the others that were left."""
        with self._locked():
            yield
            show(path, self.socket_path)
            for other in self._sockets():
                if other != path:
                    ask_to_stop(other)

    def stop(self) -> list[int]:
        """Ends what was left here as soon as no session uses it, and returns the pids."""
        with contextlib.suppress(OSError), self._locked():
            pids = [pid for path in self._sockets() if (pid := ask_to_stop(path)) is not None]
            self.socket_path.unlink(missing_ok=True)
            return pids
        return []

    def remove(self, path: Path) -> None:
        """Removes the socket of a worker that ends, and what else nobody else uses here."""
        with contextlib.suppress(OSError), self._locked():
            path.unlink(missing_ok=True)
            if self.socket_path.is_symlink() and self.socket_path.readlink().name == path.name:
                self.socket_path.unlink()
            self.folder.rmdir()
            self.folder.parent.rmdir()

    def _sockets(self) -> list[Path]:
        return [path for path in self.folder.iterdir() if path.is_socket() and not path.is_symlink()]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def show(path: Path, link: Path) -> None:
    """Lets sessions that look at ``link`` find the socket at ``path``, which is in the same folder, at once."""
    new = path.with_suffix(".link")
    new.symlink_to(path.name)
    os.replace(new, link)


def all_places() -> list[KeptPlace]:
    """Returns every place of this user."""
    root = _root()
    if not root.is_dir() or foreign_folder(root):
        return []
    return [KeptPlace(folder) for folder in sorted(root.iterdir()) if folder.is_dir()]


def ask_to_stop(path: Path) -> int | None:
    """Asks the worker at a socket to end as soon as no session uses it; one with a session of its own does not.

    Returns:
      Its pid; None if it goes on, or if there is none, whose socket is then removed.
    """
    try:
        connection = WarmHost(path).control
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)
        return None
    except OSError:
        return None
    with connection, contextlib.suppress(OSError, framing.ProtocolError, ValueError):
        connection.settimeout(_ANSWER_SECONDS)
        connection.sendall(framing.encode({"stop": True}))
        [answer] = framing.FrameReader().feed(connection.recv(1 << 16))
        return answer.get("stopping") if isinstance(answer, dict) else None
    return None
