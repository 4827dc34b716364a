"""What is seen at ``/gcs`` in the mode ``fuse``: a store's folder, with the semantics of Cloud Storage FUSE.

What differs from a folder, as documented for gcsfuse without options on a bucket without hierarchical namespace:
a file is stored when it is closed or synced, and fails with ESTALE if it was replaced meanwhile; a folder that holds
anything cannot be renamed (EMFILE); nothing is renamed to another bucket; buckets cannot be listed, made or removed;
modes and owners are fixed; there are no hard links and no extended attributes.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import os
import stat
from collections.abc import Iterator

from t5x_harness.google.gcs_mount.protocol import Attributes
from t5x_harness.google.gcs_mount.staged import StagedFile, identity

_FILE_MODE, _FOLDER_MODE = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755


@dataclasses.dataclass(eq=False)
class Node:
    """A file or folder that the kernel knows by a number.

    Attributes:
      number: the kernel's.
      path: below the mount; empty for the root, ``bucket/a/b`` otherwise.
      lookups: how often the kernel has looked it up; at 0 it is forgotten.
      staged: its content, while it is open for writing.
      writers: how many handles are open for writing.
      readers: the handles that are open for reading alone.
      removed: whether it was removed while it was open, so that what is written to it goes nowhere.
    """

    number: int
    path: bytes
    lookups: int = 0
    staged: StagedFile | None = None
    writers: int = 0
    readers: list[Handle] = dataclasses.field(default_factory=list)
    removed: bool = False


@dataclasses.dataclass(eq=False)
class Handle:
    """An open file.

    Attributes:
      descriptor: what a reader reads from while nobody writes; None for a writer, and before the last writer has ended.
    """

    node: Node
    writes: bool
    descriptor: int | None = None


class FileSystem:
    """The nodes, and what can be done with them; every method may raise OSError, whose number is the answer."""

    def __init__(self, buckets: str, staging: str) -> None:
        """Takes the folder of buckets, and a folder on the same file system for what is being written."""
        self._buckets = os.fsencode(buckets)
        self._staging = staging
        self._numbers = itertools.count(2)
        self._by_path: dict[bytes, Node] = {b"": Node(1, b"", lookups=1)}
        self.nodes: dict[int, Node] = {1: self._by_path[b""]}

    def look_up(self, parent: Node, name: bytes) -> Node:
        """Returns the node of that name; see :meth:`tell`."""
        path = self._below(parent, name)
        known = self._by_path.get(path)
        if not (known and known.staged):
            self._stat(path)
        return self._known(path)

    def tell(self, node: Node) -> Attributes:
        """Returns the kernel's answer on a node that it asked for by name, which counts as one more look-up."""
        try:
            found = self.attributes(node)
        except OSError:
            self.forget(node.number, 0)
            raise
        node.lookups += 1
        return found

    def forget(self, number: int, lookups: int) -> None:
        """Lowers the number of times that the kernel knows a node."""
        node = self.nodes.get(number)
        if node is None or number == 1:
            return
        node.lookups -= lookups
        if node.lookups <= 0:
            del self.nodes[number]
            self._unname(node)

    def attributes(self, node: Node) -> Attributes:
        """Returns size and times of what the mount shows; mode and owner are always the same, as in gcsfuse."""
        found = os.fstat(node.staged.descriptor) if node.staged else self._stat(node.path)
        is_folder = stat.S_ISDIR(found.st_mode)
        return Attributes(
            node=node.number,
            mode=_FOLDER_MODE if is_folder else _FILE_MODE,
            size=0 if is_folder else found.st_size,
            links=1,
            uid=os.getuid(),
            gid=os.getgid(),
            accessed=found.st_mtime_ns,
            modified=found.st_mtime_ns,
            changed=found.st_mtime_ns,
        )

    def list(self, folder: Node) -> list[tuple[bytes, bool]]:
        """Names in a folder, and whether each is a folder; files that are being written are among them."""
        if not folder.path:
            raise OSError(errno.ENOTSUP, "the buckets that there are cannot be listed")
        with os.scandir(self._real(folder.path)) as entries:
            found = {
                entry.name: is_folder
                for entry in entries
                if (is_folder := entry.is_dir(follow_symlinks=False)) or entry.is_file(follow_symlinks=False)
            }
        found |= {os.path.basename(node.path): False for node in self._unstored(folder.path)}
        return sorted(found.items())

    def create(self, parent: Node, name: bytes) -> tuple[Node, Handle]:
        """Returns a new file, which others see when it is closed."""
        if not parent.path:
            # Not ENOSYS, as for folders: the kernel would take it that nothing can be created anywhere.
            raise OSError(errno.ENOTSUP, "files lie in buckets")
        path = self._below(parent, name)
        self._stat(parent.path)
        staged = StagedFile.empty(self._staging, None)
        node = self._known(path)
        node.staged = staged
        node.writers += 1
        return node, Handle(node, writes=True)

    def open(self, node: Node, flags: int) -> Handle:
        if flags & os.O_ACCMODE == os.O_RDONLY:
            real = None if node.staged else os.open(self._real(node.path), os.O_RDONLY | os.O_NOFOLLOW)
            reader = Handle(node, writes=False, descriptor=real)
            node.readers.append(reader)
            return reader
        if flags & os.O_TRUNC and node.staged is None:
            self._stat(node.path)
            node.staged = StagedFile.empty(self._staging, identity(self._real(node.path)))
        staged = self._stage(node)
        if flags & os.O_TRUNC:
            staged.truncate(0)
        node.writers += 1
        return Handle(node, writes=True)

    def read(self, handle: Handle, offset: int, size: int) -> bytes:
        """Bytes of the file as it is being written, if it is."""
        staged = handle.node.staged
        descriptor = staged.descriptor if staged else handle.descriptor
        assert descriptor is not None, "a writer keeps the content, and leaves it to the readers"
        return os.pread(descriptor, size, offset)

    def write(self, handle: Handle, data: memoryview, offset: int) -> int:
        """Writes into the file as the mount shows it."""
        return self._stage(handle.node).write(data, offset)

    def flush(self, handle: Handle) -> None:
        """Stores what was written; at each close of a descriptor, and at fsync."""
        node = handle.node
        if node.staged and not node.removed:
            node.staged.publish(self._real(node.path))

    def release(self, handle: Handle) -> None:
        """Closes a file whose last descriptor was closed."""
        node = handle.node
        if handle.writes:
            node.writers -= 1
            self._leave(node)
            return
        node.readers.remove(handle)
        if handle.descriptor is not None:
            os.close(handle.descriptor)

    def resize(self, node: Node, size: int) -> None:
        """Sets a file's size, at once in the store unless somebody writes to it."""
        self._stage(node).truncate(size)
        self._store_unless_written(node)

    def set_modified(self, node: Node, nanoseconds: int) -> None:
        """Sets the time of modification of a file; a folder has none that could be kept."""
        if node.staged:
            node.staged.set_modified(nanoseconds)
        elif stat.S_ISREG(self._stat(node.path).st_mode):
            os.utime(self._real(node.path), ns=(nanoseconds, nanoseconds))

    def make_folder(self, parent: Node, name: bytes) -> Node:
        path = self._inside_bucket(parent, name)
        os.mkdir(self._real(path))
        return self._known(path)

    def remove_file(self, parent: Node, name: bytes) -> None:
        """Removes a file; what is still written to it goes nowhere."""
        path = self._inside_bucket(parent, name)
        node = self._by_path.get(path)
        try:
            os.unlink(self._real(path))
        except FileNotFoundError:
            if not (node and node.staged):
                raise
        if node:
            node.removed = True
            self._unname(node)

    def remove_folder(self, parent: Node, name: bytes) -> None:
        """Removes an empty folder."""
        path = self._inside_bucket(parent, name)
        if any(self._unstored(path)):
            raise OSError(errno.ENOTEMPTY, "files in it are being written")
        os.rmdir(self._real(path))
        if node := self._by_path.get(path):
            self._unname(node)

    def rename(self, parent: Node, name: bytes, new_parent: Node, new_name: bytes) -> None:
        """Renames a file, or an empty folder, within a bucket."""
        old, new = self._below(parent, name), self._below(new_parent, new_name)
        if not (parent.path and new_parent.path) or old.split(b"/")[0] != new.split(b"/")[0]:
            raise OSError(errno.ENOTSUP, "only within a bucket")
        node = self._by_path.get(old)
        if node and node.staged:
            node.staged.publish(self._real(old))
        if stat.S_ISDIR(self._stat(old).st_mode):
            if any(self._unstored(old)):
                raise OSError(errno.ENOTSUP, "files in it are being written")
            if os.listdir(self._real(old)):
                raise OSError(errno.EMFILE, "a folder that holds anything")
        os.rename(self._real(old), self._real(new))
        if replaced := self._by_path.get(new):
            replaced.removed = True
            self._unname(replaced)
        if node:
            self._unname(node)
            node.path = new
            self._by_path[new] = node

    def _stage(self, node: Node) -> StagedFile:
        if node.staged is None:
            node.staged = StagedFile.copy_of(self._real(node.path), self._staging)
        return node.staged

    def _store_unless_written(self, node: Node) -> None:
        if node.staged and not node.writers:
            if not node.removed:
                node.staged.publish(self._real(node.path))
            self._leave(node)

    def _leave(self, node: Node) -> None:
        """Lets the content go after the last writer; those who still read go on with it."""
        if node.staged is None or node.writers:
            return
        for reader in node.readers:
            if reader.descriptor is not None:
                os.close(reader.descriptor)
            reader.descriptor = os.dup(node.staged.descriptor)
        node.staged.close()
        node.staged = None

    def _known(self, path: bytes) -> Node:
        node = self._by_path.get(path)
        if node is None:
            node = self._by_path[path] = Node(next(self._numbers), path)
            self.nodes[node.number] = node
        return node

    def _unname(self, node: Node) -> None:
        if self._by_path.get(node.path) is node:
            del self._by_path[node.path]

    def _unstored(self, folder: bytes) -> Iterator[Node]:
        """Returns the files in a folder, not below it, that are open for writing."""
        return (n for n in self._by_path.values() if n.staged and os.path.dirname(n.path) == folder)

    def _inside_bucket(self, parent: Node, name: bytes) -> bytes:
        if not parent.path:
            raise OSError(errno.ENOSYS, "buckets are not made or removed here")
        return self._below(parent, name)

    def _below(self, parent: Node, name: bytes) -> bytes:
        return parent.path + b"/" + name if parent.path else name

    def _real(self, path: bytes) -> bytes:
        return os.path.join(self._buckets, path) if path else self._buckets

    def _stat(self, path: bytes) -> os.stat_result:
        found = os.stat(self._real(path), follow_symlinks=False)
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise OSError(errno.ENOENT, "neither an object nor a folder")
        return found
