"""The process behind a mount in the mode ``fuse``, which ends with the last process in the mount's namespace."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Callable, Iterator

from t5x_harness.google.gcs_mount import protocol
from t5x_harness.google.gcs_mount.filesystem import FileSystem
from t5x_harness.google.gcs_mount.namespace import NamespaceRefused, mount
from t5x_harness.google.gcs_mount.nodes import Handle
from t5x_harness.google.gcs_mount.protocol import FuseRequest, Operation
from t5x_harness.system.side_process import side_process

_DEVICE = "/dev/fuse"
# The used fields of setattr: size, modification time, and modification time now.
_SIZE, _MODIFIED, _MODIFIED_NOW = 1 << 3, 1 << 5, 1 << 8


class FuseMount:
    """A server as the mounting process sees it."""

    def __init__(self, hand_over: Callable[[int], None]) -> None:
        self._hand_over = hand_over

    def mount_at(self, target: str) -> None:
        """Mounts the file system in this process's mount namespace; raises NamespaceRefused if that fails."""
        try:
            device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise NamespaceRefused(f"opening {_DEVICE}: {error.strerror}") from None
        options = f"fd={device},rootmode=40755,user_id={os.getuid()},group_id={os.getgid()}"
        mount("gcsfuse", target, "fuse.gcsfuse", 0, f"{options},default_permissions,allow_other")
        self._hand_over(device)


@contextlib.contextmanager
def start_server(root: str | os.PathLike[str]) -> Iterator[FuseMount]:
    """Starts the server of a store, outside of the namespace that it will serve, and yields it for mounting.

    The calling process must have a single thread; see :func:`side_process`.

    Raises:
      NamespaceRefused: the file system of the store's folder has no unnamed files.
    """
    folder = os.path.abspath(root)
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR))
    except OSError as error:
        raise NamespaceRefused(f"files without a name (O_TMPFILE) in {folder}: {error.strerror}") from None

    def serve(device: int) -> None:
        FuseServer(device, FileSystem(folder)).serve()

    with side_process("gcsfuse", serve) as hand_over:
        yield FuseMount(hand_over)


class FuseServer:
    """Answers requests one after the other, because nothing but the disk makes it wait."""

    def __init__(self, device: int, files: FileSystem) -> None:
        self._device = device
        self._files = files
        self._handles: dict[int, Handle] = {}
        # The content of each folder when its reading began, so that offsets stay valid after removals.
        self._listings: dict[int, list[tuple[bytes, bool]]] = {}
        self._numbers = itertools.count(1)
        self._answers: dict[int, Callable[[FuseRequest], bytes | None]] = {
            Operation.INIT: lambda r: protocol.init_answer(r.body),
            Operation.LOOKUP: self._look_up,
            Operation.FORGET: self._forget,
            Operation.BATCH_FORGET: self._forget_many,
            Operation.GETATTR: self._attributes,
            Operation.SETATTR: self._set_attributes,
            Operation.MKDIR: self._make_folder,
            Operation.SYMLINK: self._refuse,
            Operation.MKNOD: self._refuse,
            Operation.UNLINK: self._unlink,
            Operation.RMDIR: self._rmdir,
            Operation.RENAME: self._rename,
            Operation.CREATE: self._create,
            Operation.OPEN: self._open,
            Operation.READ: self._read,
            Operation.WRITE: self._write,
            Operation.FLUSH: self._flush,
            Operation.FSYNC: self._flush,
            Operation.RELEASE: self._release,
            Operation.OPENDIR: self._open_folder,
            Operation.READDIR: self._list,
            Operation.RELEASEDIR: self._close_folder,
            Operation.STATFS: lambda r: protocol.endless_space(),
            Operation.DESTROY: lambda r: b"",
        }

    def serve(self) -> None:
        """Answers requests until the mount is gone."""
        while (request := protocol.read_request(self._device)) is not None:
            try:
                found = self.answer(request)
            except OSError as error:
                protocol.reply_error(self._device, request.unique, error.errno or errno.EIO)
            else:
                if found is not None:
                    protocol.reply(self._device, request.unique, found)

    def answer(self, request: FuseRequest) -> bytes | None:
        """Returns the answer to a request, or None if the kernel expects none; an OSError has the number to answer."""
        answer = self._answers.get(request.operation)
        if answer is None:
            raise OSError(errno.ENOSYS, "not emulated")
        return answer(request)

    def _look_up(self, r: FuseRequest) -> bytes:
        node = self._files.look_up(self._files.nodes[r.node], r.names()[0])
        return self._files.tell(node).as_entry()

    def _forget(self, r: FuseRequest) -> None:
        self._files.forget(r.node, *r.unpack("Q"))

    def _forget_many(self, r: FuseRequest) -> None:
        count, _ = r.unpack("II")
        for index in range(count):
            self._files.forget(*r.unpack(f"{8 + 16 * index}xQQ"))

    def _attributes(self, r: FuseRequest) -> bytes:
        return self._files.attributes(self._files.nodes[r.node]).as_answer()

    def _set_attributes(self, r: FuseRequest) -> bytes:
        valid, _, _, size, _, _, seconds, _, _, nanoseconds = r.unpack("IIQQQqqqII")
        node = self._files.nodes[r.node]
        if valid & _SIZE:
            self._files.resize(node, size)
        if valid & _MODIFIED and not valid & _MODIFIED_NOW:
            self._files.set_modified(node, seconds * 1_000_000_000 + nanoseconds)
        return self._attributes(r)

    def _make_folder(self, r: FuseRequest) -> bytes:
        node = self._files.make_folder(self._files.nodes[r.node], r.names(8)[0])
        return self._files.tell(node).as_entry()

    def _refuse(self, _r: FuseRequest) -> bytes:
        raise OSError(errno.ENOTSUP, "files and folders only")

    def _unlink(self, r: FuseRequest) -> bytes:
        self._files.remove_file(self._files.nodes[r.node], r.names()[0])
        return b""

    def _rmdir(self, r: FuseRequest) -> bytes:
        self._files.remove_folder(self._files.nodes[r.node], r.names()[0])
        return b""

    def _rename(self, r: FuseRequest) -> bytes:
        (parent,) = r.unpack("Q")
        old, new = r.names(8)
        self._files.rename(self._files.nodes[r.node], old, self._files.nodes[parent], new)
        return b""

    def _create(self, r: FuseRequest) -> bytes:
        node, handle = self._files.create(self._files.nodes[r.node], r.names(16)[0])
        return self._files.tell(node).as_entry() + self._opened(self._keep(handle))

    def _open(self, r: FuseRequest) -> bytes:
        flags, _ = r.unpack("II")
        return self._opened(self._keep(self._files.open(self._files.nodes[r.node], flags)))

    def _read(self, r: FuseRequest) -> bytes:
        number, offset, size = r.unpack("QQI")
        return self._files.read(self._handles[number], offset, size)

    def _write(self, r: FuseRequest) -> bytes:
        number, offset, size = r.unpack("QQI")
        written = self._files.write(self._handles[number], r.body[40 : 40 + size], offset)
        return written.to_bytes(8, "little")

    def _flush(self, r: FuseRequest) -> bytes:
        (number,) = r.unpack("Q")
        self._files.flush(self._handles[number])
        return b""

    def _release(self, r: FuseRequest) -> bytes:
        (number,) = r.unpack("Q")
        self._files.release(self._handles.pop(number))
        return b""

    def _open_folder(self, _r: FuseRequest) -> bytes:
        number = next(self._numbers)
        self._listings[number] = []
        return self._opened(number)

    def _list(self, r: FuseRequest) -> bytes:
        number, offset, size = r.unpack("QQI")
        if offset == 0:  # also after rewinddir, which reads the folder again
            self._listings[number] = self._files.list(self._files.nodes[r.node])
        return protocol.directory_entries(self._listings[number], offset, size)

    def _close_folder(self, r: FuseRequest) -> bytes:
        (number,) = r.unpack("Q")
        del self._listings[number]
        return b""

    def _keep(self, handle: Handle) -> int:
        number = next(self._numbers)
        self._handles[number] = handle
        return number

    def _opened(self, number: int) -> bytes:
        return number.to_bytes(16, "little")
