"""The file system at ``/gcs`` in the mode ``fuse``: a store's folder, with the semantics of Cloud Storage FUSE.

It differs from a folder as gcsfuse does without options on a bucket without a hierarchical namespace. A file is stored
when it is closed or synced. That fails with ESTALE if the object was replaced, renamed or deleted meanwhile, and so do
further reads. A folder that holds anything cannot be renamed (EMFILE), and nothing is renamed to another bucket.
Buckets cannot be listed, made or removed; modes and owners are fixed; there are no hard links and no extended
attributes.

All changes of the tree happen under the lock on the store's files, which Cloud Storage's own API also holds while it
compares generations.
"""

import errno
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from t5x_harness.google.gcs_mount.nodes import Attributes, FileGeneration, Handle, Node, StagedContent
from t5x_harness.google.storage.disk import FilesLock, StoreLayout
from t5x_harness.google.storage.names import LONGEST_OBJECT_NAME, object_fault
from t5x_harness.google.storage.tree import make_folders

Made = TypeVar("Made")

_FILE_MODE, _FOLDER_MODE = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755


class FileSystem:
    """The nodes and the operations on them; every method may raise OSError, whose number is the answer."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """Opens the folder of a store by its root."""
        self._layout = StoreLayout(Path(root))
        self._buckets = os.fsencode(self._layout.buckets) + b"/"
        self._changing = FilesLock(self._layout.root)
        self._numbers = itertools.count(2)
        self._by_path: dict[bytes, Node] = {b"": Node(1, b"", folder=True, lookups=1)}
        self.nodes: dict[int, Node] = {1: self._by_path[b""]}

    def look_up(self, parent: Node, name: bytes) -> Node:
        """Returns the node of a name; see :meth:`tell`."""
        path = self._below(parent, name)
        known = self._by_path.get(path)
        if known and known.unsaved:
            return known
        found = self._stat(path)
        return known if known and known.is_of(found) else self._new_node(path, found)

    def tell(self, node: Node) -> Attributes:
        """Returns the attributes of a node that the kernel asked for by name, which counts as one more lookup."""
        try:
            found = self.attributes(node)
        except OSError:
            self.forget(node.number, 0)
            raise
        node.lookups += 1
        return found

    def forget(self, number: int, lookups: int) -> None:
        """Lowers the number of lookups of a node, and forgets it at 0."""
        node = self.nodes.get(number)
        if node is None or number == 1:
            return
        node.lookups -= lookups
        if node.lookups <= 0:
            del self.nodes[number]
            self._unname(node)

    def attributes(self, node: Node) -> Attributes:
        """Returns a node's size and times as the mount shows them, with gcsfuse's fixed mode and owner."""
        if node.staged:
            found = os.fstat(node.staged.descriptor)
        elif node.content is not None:
            found = os.fstat(node.content)
        else:
            found = self._stat(node.path)
            if stat.S_ISDIR(found.st_mode) is not node.folder:
                raise _stale()
        mode, size = (_FOLDER_MODE, 0) if node.folder else (_FILE_MODE, found.st_size)
        return Attributes(node.number, mode, size, found.st_mtime_ns)

    def list(self, folder: Node) -> list[tuple[bytes, bool]]:
        """Returns the names in a folder, and whether each is a folder; includes files that are being written."""
        if not folder.path:
            raise OSError(errno.ENOTSUP, "buckets cannot be listed")
        # Otherwise a file that another mount renames might be missed under both names.
        with self._changing, os.scandir(self._real(folder.path)) as entries:
            found = {
                entry.name: is_folder
                for entry in entries
                if (is_folder := entry.is_dir(follow_symlinks=False)) or entry.is_file(follow_symlinks=False)
            }
        found |= {os.path.basename(node.path): False for node in self._unstored(folder.path)}
        return sorted(found.items())

    def create(self, parent: Node, name: bytes) -> tuple[Node, Handle]:
        """Creates a file, which others see when it is closed."""
        if not parent.path:
            # Not ENOSYS, as for folders: the kernel would conclude that nothing can be created anywhere.
            raise OSError(errno.ENOTSUP, "files lie in buckets")
        path = self._new_name(parent, name)
        self._stat(parent.path)
        staged = StagedContent(self._layout)
        node = self._new_node(path, None)
        node.staged, node.writers = staged, 1
        return node, Handle(node, writes=True)

    def open(self, node: Node, flags: int) -> Handle:
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        changes = writes or flags & os.O_TRUNC
        # The kernel then looks the file up again; for a reader, a stale handle is better.
        if node.removed or (changes and node.content is not None and not self._is_live(node)):
            raise _stale()
        if flags & os.O_TRUNC and node.staged is None:
            node.generation = FileGeneration.of(self._stat(node.path))
            self._write_to(node, StagedContent(self._layout))
        elif writes:
            staged = self._stage(node)
            if flags & os.O_TRUNC:
                staged.truncate(0)
        elif node.staged is None:
            self._open_content(node)
        if writes:
            node.writers += 1
        else:
            node.readers += 1
        return Handle(node, writes)

    def read(self, handle: Handle, offset: int, size: int) -> bytes:
        """Reads a file as it is being written, or otherwise its generation as long as that is live."""
        node = handle.node
        if node.staged:
            return os.pread(node.staged.descriptor, size, offset)
        if node.content is None or not self._is_live(node):
            raise _stale()
        return os.pread(node.content, size, offset)

    def write(self, handle: Handle, data: memoryview, offset: int) -> int:
        """Writes to the file that the mount shows."""
        return self._stage(handle.node).write(data, offset)

    def flush(self, node: Node) -> None:
        """Stores the written content, at each close of a descriptor and at fsync."""
        if node.unsaved and not node.removed:
            with self._changing:
                self._publish(node)

    def release(self, handle: Handle) -> None:
        """Releases a handle whose last descriptor was closed."""
        node = handle.node
        if handle.writes:
            node.writers -= 1
        else:
            node.readers -= 1
        self._leave(node)

    def resize(self, node: Node, size: int) -> None:
        """Sets a file's size, immediately in the store unless the file is open for writing."""
        try:
            self._stage(node).truncate(size)
            if not node.writers:
                self.flush(node)
        finally:
            self._leave(node)

    def set_modified(self, node: Node, nanoseconds: int) -> None:
        """Sets the modification time of a file; folders have none."""
        if node.folder:
            return
        times, real = (nanoseconds, nanoseconds), self._real(node.path)
        with self._changing:
            stored = not node.unsaved and self._is_live(node)
            if node.staged:
                os.utime(node.staged.descriptor, ns=times)
            elif not stored:
                raise _stale()
            if stored:
                os.utime(real, ns=times)
                node.generation = FileGeneration.of(os.stat(real))

    def make_folder(self, parent: Node, name: bytes) -> Node:
        path = self._new_name(parent, name)
        with self._changing:
            self._in_its_folder(path, lambda: os.mkdir(self._real(path)))
        return self._new_node(path, self._stat(path))

    def remove_file(self, parent: Node, name: bytes) -> None:
        """Removes a file; further writes to it are lost."""
        path = self._inside_bucket(parent, name)
        node = self._by_path.get(path)
        with self._changing:
            try:
                os.unlink(self._real(path))
            except FileNotFoundError:
                if not (node and node.unsaved):
                    raise
        if node:
            node.removed = True
            self._unname(node)

    def remove_folder(self, parent: Node, name: bytes) -> None:
        """Removes an empty folder."""
        path = self._inside_bucket(parent, name)
        if any(self._unstored(path)):
            raise OSError(errno.ENOTEMPTY, "files in it are being written")
        with self._changing:
            os.rmdir(self._real(path))
        if node := self._by_path.get(path):
            self._unname(node)

    def rename(self, parent: Node, name: bytes, new_parent: Node, new_name: bytes) -> None:
        """Renames a file or an empty folder within a bucket; open handles of the file become stale."""
        old, new = self._below(parent, name), self._below(new_parent, new_name)
        if not (parent.path and new_parent.path) or old.split(b"/")[0] != new.split(b"/")[0]:
            raise OSError(errno.ENOTSUP, "only within a bucket")
        self._new_name(new_parent, new_name)
        node = self._by_path.get(old)
        with self._changing:
            if node and node.unsaved:
                self._publish(node)
            if stat.S_ISDIR(self._stat(old).st_mode):
                if any(self._unstored(old)):
                    raise OSError(errno.ENOTSUP, "files in it are being written")
                if os.listdir(self._real(old)):
                    raise OSError(errno.EMFILE, "a folder that holds anything")
            self._in_its_folder(new, lambda: os.rename(self._real(old), self._real(new)))
        if replaced := self._by_path.get(new):
            replaced.removed = True
            self._unname(replaced)
        if node:
            self._unname(node)
            if node.folder:
                node.path, self._by_path[new] = new, node

    def _open_content(self, node: Node) -> int:
        """Opens a stored file, in the generation that the kernel looked up as long as any process has that open."""
        if node.removed:
            raise _stale()
        if node.content is None:
            descriptor = os.open(self._real(node.path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                os.close(descriptor)
                raise _stale()
            # It may have been replaced since the lookup. No process has it open, so the kernel keeps no pages.
            node.content, node.generation = descriptor, FileGeneration.of(found)
        return node.content

    def _stage(self, node: Node) -> StagedContent:
        if node.staged is None:
            try:
                return self._write_to(node, StagedContent(self._layout, self._open_content(node)))
            except BaseException:
                self._leave(node)
                raise
        return node.staged

    def _write_to(self, node: Node, staged: StagedContent) -> StagedContent:
        """Shows new content to all handles of a file from now on."""
        self._replace_content(node, None)
        node.staged = staged
        return staged

    def _publish(self, node: Node) -> None:
        """Stores the written content and the folders above it; needs the lock on the store's files."""
        assert node.staged, "only a file that is being written can be stored"
        publish, base = node.staged.publish, node.generation
        node.generation = self._in_its_folder(node.path, lambda: publish(self._real(node.path), base))

    def _leave(self, node: Node) -> None:
        """Releases the content after the last writer, unless readers remain, and after the last reader."""
        if node.staged and not node.writers:
            if node.unsaved:  # the lost content is no longer that of the name, even for remaining readers
                node.generation = None
                self._unname(node)
            self._replace_content(node, node.staged.descriptor)
            node.staged = None
        if not (node.readers or node.staged):
            self._replace_content(node, None)

    def _replace_content(self, node: Node, descriptor: int | None) -> None:
        if node.content is not None:
            os.close(node.content)
        node.content = descriptor

    def _new_node(self, path: bytes, found: os.stat_result | None) -> Node:
        """Returns a node for a file or folder of the tree, or with ``None`` for a new file; it takes over the name."""
        folder = found is not None and stat.S_ISDIR(found.st_mode)
        generation = None if found is None or folder else FileGeneration.of(found)
        node = self._by_path[path] = Node(next(self._numbers), path, folder, generation)
        self.nodes[node.number] = node
        return node

    def _unname(self, node: Node) -> None:
        if self._by_path.get(node.path) is node:
            del self._by_path[node.path]

    def _unstored(self, folder: bytes) -> Iterator[Node]:
        """Yields the files directly in a folder that were written and are not stored."""
        return (n for n in self._by_path.values() if n.unsaved and os.path.dirname(n.path) == folder)

    def _in_its_folder(self, path: bytes, make: Callable[[], Made]) -> Made:
        """Makes a file or folder; if the folders above it went with their last object, makes them again first."""
        try:
            return make()
        except FileNotFoundError:
            self._stat(path.partition(b"/")[0])
            if not make_folders(self._real(os.path.dirname(path))):
                raise OSError(errno.ENOTDIR, "an object has the name of a folder above it") from None
            return make()

    def _new_name(self, parent: Node, name: bytes) -> bytes:
        """Returns the path for a new file or folder; raises OSError if no object can have its name."""
        path = self._inside_bucket(parent, name)
        in_bucket = path.partition(b"/")[2]
        if len(in_bucket) > LONGEST_OBJECT_NAME:
            raise OSError(errno.ENAMETOOLONG, f"names of objects have at most {LONGEST_OBJECT_NAME} bytes")
        if object_fault(os.fsdecode(in_bucket)) is not None:
            raise OSError(errno.EINVAL, "no object can have this name")
        return path

    def _inside_bucket(self, parent: Node, name: bytes) -> bytes:
        if not parent.path:
            raise OSError(errno.ENOSYS, "buckets are not made or removed here")
        return self._below(parent, name)

    def _below(self, parent: Node, name: bytes) -> bytes:
        return parent.path + b"/" + name if parent.path else name

    def _is_live(self, node: Node) -> bool:
        """Tells whether the store still has a node's generation under its name."""
        return not node.removed and node.generation is not None and node.generation.is_at(self._real(node.path))

    def _real(self, path: bytes) -> bytes:
        return self._buckets + path

    def _stat(self, path: bytes) -> os.stat_result:
        found = os.stat(self._real(path), follow_symlinks=False)
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise OSError(errno.ENOENT, "neither an object nor a folder")
        return found


def _stale() -> OSError:
    return OSError(errno.ESTALE, "the object was replaced or deleted meanwhile")
