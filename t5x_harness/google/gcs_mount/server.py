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
from t5x_harness.google.gcs_mount.nodes import Handle, Node
from t5x_harness.google.gcs_mount.protocol import FuseRequest, Operation
from t5x_harness.system.processes import side_process

_DEVICE = "/dev/fuse"
# The used fields of setattr: size, modification time, and modification time now.
_SIZE, _MODIFIED, _MODIFIED_NOW = 1 << 3, 1 << 5, 1 << 8


@contextlib.contextmanager
def start_server(root: str | os.PathLike[str]) -> Iterator[Callable[[str], None]]:
    """Starts the server of a store, outside of the namespace that it will serve.

    The calling process must have a single thread; see :func:`side_process`.

    Yields:
      A function that mounts the file system at a path of this process's mount namespace; it raises NamespaceRefused if
      that fails.

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

    def mount_at(target: str) -> None:
        try:
            device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise NamespaceRefused(f"opening {_DEVICE}: {error.strerror}") from None
        options = f"fd={device},rootmode=40755,user_id={os.getuid()},group_id={os.getgid()}"
        mount("gcsfuse", target, "fuse.gcsfuse", 0, f"{options},default_permissions,allow_other")
        hand_over(device)

    with side_process("gcsfuse", serve) as hand_over:
        yield mount_at


class FuseServer:
    """Answers requests one after the other, because nothing but the disk makes it wait."""

    def __init__(self, device: int, files: FileSystem) -> None:
        self._device = device
        self._files = files
        self._handles: dict[int, Handle] = {}
        # The content of each folder when its reading began, so that offsets stay valid after removals.
        self._listings: dict[int, list[tuple[bytes, bool]]] = {}
        self._numbers = itertools.count(1)
        # An answer of None has no content.
        self._answers: dict[int, Callable[[FuseRequest], bytes | None]] = {
            Operation.INIT: lambda r: protocol.init_answer(r.body),
            Operation.LOOKUP: lambda r: self._entry(files.look_up(self._node(r), r.names()[0])),
            Operation.FORGET: lambda r: files.forget(r.node, *r.unpack("Q")),
            Operation.BATCH_FORGET: self._forget_many,
            Operation.GETATTR: lambda r: files.attributes(self._node(r)).as_answer(),
            Operation.SETATTR: self._set_attributes,
            Operation.MKDIR: lambda r: self._entry(files.make_folder(self._node(r), r.names(8)[0])),
            Operation.SYMLINK: self._refuse,
            Operation.MKNOD: self._refuse,
            Operation.UNLINK: lambda r: files.remove_file(self._node(r), r.names()[0]),
            Operation.RMDIR: lambda r: files.remove_folder(self._node(r), r.names()[0]),
            Operation.RENAME: self._rename,
            Operation.CREATE: self._create,
            Operation.OPEN: lambda r: self._opened(files.open(self._node(r), r.unpack("I")[0])),
            Operation.READ: self._read,
            Operation.WRITE: self._write,
            Operation.FLUSH: lambda r: files.flush(self._handles[r.unpack("Q")[0]].node),
            Operation.FSYNC: lambda r: files.flush(self._handles[r.unpack("Q")[0]].node),
            Operation.RELEASE: lambda r: files.release(self._handles.pop(r.unpack("Q")[0])),
            Operation.OPENDIR: lambda r: next(self._numbers).to_bytes(16, "little"),
            Operation.READDIR: self._list,
            Operation.RELEASEDIR: self._close_folder,
            Operation.STATFS: lambda r: protocol.endless_space(),
            Operation.DESTROY: lambda r: None,
        }

    def serve(self) -> None:
        """Answers requests until the mount is gone."""
        while (request := protocol.read_request(self._device)) is not None:
            try:
                found = self.answer(request)
            except OSError as error:
                protocol.reply(self._device, request.unique, error=error.errno or errno.EIO)
            else:
                if request.operation not in (Operation.FORGET, Operation.BATCH_FORGET):  # the kernel expects no answer
                    protocol.reply(self._device, request.unique, found)

    def answer(self, request: FuseRequest) -> bytes:
        """Returns the answer to a request; an OSError has the number to answer."""
        answer = self._answers.get(request.operation)
        if answer is None:
            raise OSError(errno.ENOSYS, "not emulated")
        return answer(request) or b""

    def _node(self, r: FuseRequest) -> Node:
        return self._files.nodes[r.node]

    def _entry(self, node: Node) -> bytes:
        return self._files.tell(node).as_entry()

    def _opened(self, handle: Handle) -> bytes:
        number = next(self._numbers)
        self._handles[number] = handle
        return number.to_bytes(16, "little")

    def _forget_many(self, r: FuseRequest) -> None:
        count, _ = r.unpack("II")
        for index in range(count):
            self._files.forget(*r.unpack(f"{8 + 16 * index}xQQ"))

    def _set_attributes(self, r: FuseRequest) -> bytes:
        valid, _, _, size, _, _, seconds, _, _, nanoseconds = r.unpack("IIQQQqqqII")
        node = self._node(r)
        if valid & _SIZE:
            self._files.resize(node, size)
        if valid & _MODIFIED and not valid & _MODIFIED_NOW:
            self._files.set_modified(node, seconds * 1_000_000_000 + nanoseconds)
        return self._files.attributes(node).as_answer()

    def _refuse(self, _r: FuseRequest) -> bytes:
        raise OSError(errno.ENOTSUP, "files and folders only")

    def _rename(self, r: FuseRequest) -> None:
        (parent,) = r.unpack("Q")
        old, new = r.names(8)
        self._files.rename(self._node(r), old, self._files.nodes[parent], new)

    def _create(self, r: FuseRequest) -> bytes:
        node, handle = self._files.create(self._node(r), r.names(16)[0])
        return self._entry(node) + self._opened(handle)

    def _read(self, r: FuseRequest) -> bytes:
        number, offset, size = r.unpack("QQI")
        return self._files.read(self._handles[number], offset, size)

    def _write(self, r: FuseRequest) -> bytes:
        number, offset, size = r.unpack("QQI")
        written = self._files.write(self._handles[number], r.body[40 : 40 + size], offset)
        return written.to_bytes(8, "little")

    def _list(self, r: FuseRequest) -> bytes:
        number, offset, size = r.unpack("QQI")
        if offset == 0:  # also after rewinddir, which reads the folder again
            self._listings[number] = self._files.list(self._node(r))
        return protocol.directory_entries(self._listings.get(number, []), offset, size)

    def _close_folder(self, r: FuseRequest) -> None:
        self._listings.pop(r.unpack("Q")[0], None)  # a folder need not have been read
