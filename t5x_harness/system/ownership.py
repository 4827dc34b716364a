"""Tells whether a folder or file is safe to run code from: only this user and root may change it."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

_ROOT = 0
_ALL_IDS = "4294967295"


def foreign_folder(folder: Path) -> str:
    """Returns why other users could put files into a folder, or replace it; empty if none could.

    As OpenSSH does for its keys, this checks every folder above, too. A folder above may be open to all if its sticky
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
    """Tells whether another user owns a file or may write to it."""
    return state.st_uid not in _trusted_users(above=False) or bool(_open_to(state, sticky_will_do=False))


def _open_to(state: os.stat_result, *, sticky_will_do: bool) -> str:
    """Returns who else may write; empty if no one else may."""
    if sticky_will_do and state.st_mode & stat.S_ISVTX:
        return ""
    if state.st_mode & stat.S_IWOTH:
        return "everyone"
    if state.st_mode & stat.S_IWGRP and not _is_private(state.st_gid):
        return f"group {_group_name(state.st_gid)}"
    return ""


def _trusted_users(*, above: bool) -> set[int]:
    """Returns the users whose folders and files are trusted.

    In a user namespace, root's folders belong to the overflow user, which is trusted for the folders above.
    """
    users = {os.geteuid(), _ROOT}
    with contextlib.suppress(OSError, ValueError):
        if above and Path("/proc/self/uid_map").read_text().split() != ["0", "0", _ALL_IDS]:
            users.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return users


def _is_private(group: int) -> bool:
    """Tells whether a group is root's, or has only this user, as in distributions with a umask of 002."""
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
