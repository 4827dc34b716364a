"""Folders that belong to one process, or that only this user and root can change.

A process locks its temporary folder, so that the folder of a dead process is recognized. Code runs from a folder or
file only if no other user may change it.
"""

import contextlib
import dataclasses
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_LOCK = "lock"


@dataclasses.dataclass
class OwnFolder:
    """A folder for one process.

    Attributes:
      is_kept: whether the folder remains when the process is done with it; the caller may set it.
    """

    path: Path
    is_kept: bool = False


@contextlib.contextmanager
def own_folder(prefix: str, *, last: int = 0) -> Iterator[OwnFolder]:
    """Yields a folder in ``TMPDIR``, which is removed at the end unless ``is_kept`` is set.

    Folders that dead processes of this user have left are removed at the beginning and at the end, except the newest.

    Args:
      prefix: the beginning of the folder's name.
      last: how many folders of dead processes may remain, including this one.

    Raises:
      OSError: the folder cannot be created.
    """
    parent = Path(tempfile.gettempdir())
    _remove_left(parent, prefix, last)
    folder = OwnFolder(Path(tempfile.mkdtemp(prefix=prefix)))
    try:
        with _locked(folder.path):
            yield folder
    finally:
        if folder.is_kept:
            _remove_left(parent, prefix, last)
        else:
            shutil.rmtree(folder.path, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locks a folder for as long as this process lives. Child processes do not inherit the lock."""
    making = folder / f"{_LOCK}.new"
    with making.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        making.rename(folder / _LOCK)  # so that an unlocked lock file is never seen
        yield


def _remove_left(parent: Path, prefix: str, last: int) -> None:
    """Removes the folders that dead processes of this user have left, except the last ones."""
    with contextlib.ExitStack() as locks:
        left = []
        for lock in parent.glob(f"{prefix}*/{_LOCK}"):
            with contextlib.suppress(OSError):  # it is in use, or another process is removing it
                state = lock.lstat()
                if state.st_uid != os.geteuid():
                    continue
                file = locks.enter_context(open(os.open(lock, os.O_RDONLY | os.O_NOFOLLOW), "rb"))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.append((state.st_mtime_ns, lock.parent))
        for _, folder in sorted(left)[: max(0, len(left) - last)]:
            shutil.rmtree(folder, ignore_errors=True)


_ROOT = 0
_ALL_IDS = "4294967295"


def foreign_folder(folder: Path) -> str:
    """Returns why other users could put files into a folder, or replace it; empty if none could.

    As OpenSSH does for its keys, this also checks every folder above. A folder above may be open to all if its sticky
    bit keeps users from renaming the files of others, as in ``/tmp``.

    Args:
      folder: a folder without symbolic links in its path.
    """
    for path in (folder, *folder.parents):
        state = path.stat()
        is_above = path != folder
        if state.st_uid not in _trusted_users(above=is_above):
            return f"{path} belongs to {_user_name(state.st_uid)}"
        if reason := _open_to(state, sticky_will_do=is_above):
            return f"{path} can be written by {reason}"
    return ""


def foreign_file(state: os.stat_result) -> bool:
    """Returns whether another user owns a file or may write to it."""
    return state.st_uid not in _trusted_users(above=False) or bool(_open_to(state, sticky_will_do=False))


def _open_to(state: os.stat_result, *, sticky_will_do: bool) -> str:
    """Returns who else may write to a file or folder; empty if no one else may."""
    if sticky_will_do and state.st_mode & stat.S_ISVTX:
        return ""
    if state.st_mode & stat.S_IWOTH:
        return "everyone"
    if state.st_mode & stat.S_IWGRP and not _is_private(state.st_gid):
        return f"group {_group_name(state.st_gid)}"
    return ""


def _trusted_users(*, above: bool) -> set[int]:
    """Returns the ids of the users whose folders and files are trusted.

    In a user namespace, root's folders belong to the overflow user, who is trusted for the folders above.
    """
    users = {os.geteuid(), _ROOT}
    with contextlib.suppress(OSError, ValueError):
        if above and Path("/proc/self/uid_map").read_text().split() != ["0", "0", _ALL_IDS]:
            users.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return users


def _is_private(group: int) -> bool:
    """Returns whether a group is root's, or has only this user, as in distributions with a umask of 002."""
    if group == _ROOT:
        return True
    import grp
    import pwd

    try:
        entry, user = grp.getgrgid(group), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return entry.gr_name == user.pw_name and set(entry.gr_mem) <= {user.pw_name}


def _user_name(user: int) -> str:
    import pwd

    with contextlib.suppress(KeyError):
        return f"another user, {pwd.getpwuid(user).pw_name}"
    return f"another user, number {user}"


def _group_name(group: int) -> str:
    import grp

    with contextlib.suppress(KeyError):
        return grp.getgrgid(group).gr_name
    return str(group)
