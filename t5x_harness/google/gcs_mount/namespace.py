"""A mount namespace for this process and its children, in which a folder is mounted at ``/gcs``.

It is invisible from outside, and disappears with its last process, so that there is nothing to clean up. It needs no
capability, helper or set-uid program if the kernel lets ordinary users create namespaces.

Only the standard library is used, because this runs in front of commands and has to load in milliseconds.
"""

import ctypes
import os
import stat
from collections.abc import Callable
from pathlib import Path

GCS = "/gcs"

# linux/sched.h
_CLONE_NEWNS, _CLONE_NEWUSER = 0x0002_0000, 0x1000_0000
# linux/mount.h
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = 1, 32, 4096, 16384, 1 << 19
_MNT_DETACH = 2
# linux/capability.h
_CAPABILITY_VERSION_3 = 0x2008_0522
_CAP_SYS_ADMIN = 21
# The number of the system call pivot_root, which has no function in the C library, on machines with JAX and TensorFlow.
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_OLD = "/.old"

_libc = ctypes.CDLL(None, use_errno=True)


def buckets_folder(root: str | os.PathLike[str]) -> str:
    """Returns the folder of a store that ``/gcs`` shows, with a folder for each bucket."""
    return os.path.join(os.path.abspath(root), "buckets")


class NamespaceRefused(Exception):
    """The kernel, or a rule of this machine, refuses this process the namespace; the text says which."""


def enter_namespace(folder: str | os.PathLike[str], mount_at: Callable[[str], None] | None = None) -> None:
    """Moves this process into a separate namespace in which ``/gcs`` is ``folder``.

    A root process that may mount gets a mount namespace. Any other process also gets a user namespace, in which it
    keeps its user and groups, and has no capabilities when this returns. If ``/gcs`` does not exist, the namespace
    has a new read-only root with everything of the old root in it.

    Args:
      mount_at: a function that mounts something else at a path.

    Raises:
      NamespaceRefused: a step failed; the text has the step and the kernel's reason. The process may then be in a new
        namespace that is equal to the old one.
    """
    source, cwd = os.path.realpath(folder), os.getcwd()
    status = _status()
    if status["Threads"] != "1":
        # The kernel refuses a user namespace, but would move this single thread into a mount namespace.
        raise NamespaceRefused(f"this process has {status['Threads']} threads, and only a process of one can enter")
    privileged = os.geteuid() == 0 and bool(int(status["CapEff"], 16) >> _CAP_SYS_ADMIN & 1)
    _unshare(with_users=not privileged)
    # Copies of mounts in the namespace must not keep a disk outside mounted, and mounts in it stay in it.
    mount("none", "/", None, _MS_REC | _MS_SLAVE)
    if os.path.isdir(GCS):
        _bind_or_mount(source, mount_at)
    else:
        _new_root(source, mount_at)
    os.chdir(cwd)
    if not privileged:
        # An ordinary user again: with all capabilities of its namespace, a process could read its locked files.
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        _call("giving up capabilities", _libc.capset, header, (ctypes.c_uint32 * 6)())


def _status() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _unshare(*, with_users: bool) -> None:
    uid, gid = os.geteuid(), os.getegid()
    what = "namespaces of users and mounts" if with_users else "a namespace of mounts"
    _call(what, _libc.unshare, _CLONE_NEWNS | (_CLONE_NEWUSER if with_users else 0))
    if with_users:
        try:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        except OSError as error:
            raise NamespaceRefused(f"keeping the user in the namespace: {error.strerror}") from None


def _new_root(source: str, mount_at: Callable[[str], None] | None) -> None:
    """Makes an empty root, mounts everything of the old root into it, and the source at ``/gcs``."""
    # Any folder will do: the mount on it is visible only here, and becomes the root at once.
    base = os.path.realpath("/tmp")
    mount("tmpfs", base, "tmpfs", 0, "mode=755")
    os.mkdir(base + _OLD)
    machine = os.uname().machine
    if machine not in _PIVOT_ROOT:
        raise NamespaceRefused(f"changing the root: not known how on {machine}")
    _call("changing the root", _libc.syscall, _PIVOT_ROOT[machine], base.encode(), (base + _OLD).encode())
    os.chdir("/")
    for entry in sorted(os.scandir(_OLD), key=lambda e: e.name):
        _hang_in(entry)
    os.mkdir(GCS)
    _bind_or_mount(_OLD + source, mount_at)
    _call("leaving the old root", _libc.umount2, _OLD.encode(), _MNT_DETACH)
    os.rmdir(_OLD)
    # Files directly below / would be lost with the namespace: it is better to fail at once.
    mount("none", "/", None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY)


def _hang_in(entry: os.DirEntry[str]) -> None:
    target = f"/{entry.name}"
    mode = entry.stat(follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(entry.path), target)
        return
    if stat.S_ISDIR(mode):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL))
    mount(entry.path, target, None, _MS_BIND | _MS_REC)


def _bind_or_mount(source: str, mount_at: Callable[[str], None] | None) -> None:
    if mount_at is None:
        mount(source, GCS, None, _MS_BIND | _MS_REC)
    else:
        mount_at(GCS)


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Makes the system call mount; raises NamespaceRefused if it fails."""
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    _call(f"mounting {target}", _libc.mount, *texts[:3], ctypes.c_ulong(flags), texts[3])


def _call(what: str, function: Callable[..., int], *arguments: object) -> None:
    if function(*arguments) != 0:
        raise NamespaceRefused(f"{what}: {os.strerror(ctypes.get_errno())}")
