"""After a kill of a server or a mount in the middle of an operation, both sides keep what was acknowledged."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kernel import Kernel

from t5x_harness.google.storage import streams
from t5x_harness.google.storage.errors import PreconditionFailed
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import ObjectFields, Preconditions, SourceObject


class Killed(BaseException):
    """Raised in place of a call, so that nothing after it happens."""


@contextlib.contextmanager
def killed(target: object, name: str) -> Iterator[pytest.MonkeyPatch]:
    """Simulates a kill when a function is called; a killed process cleans up nothing."""

    def die(*_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(target, name, die)
        patched.setattr(streams.BodyWriter, "abort", lambda _: None)
        with pytest.raises(Killed):
            yield patched


def put(kernel: Kernel, name: str) -> None:
    handle = kernel.open(name, os.O_WRONLY | os.O_TRUNC | os.O_CREAT)
    kernel.write(handle, 0, b"the mount's")
    kernel.close(handle)


def at_mount(root: Path, what: str) -> None:
    """Changes a file at a mount between the end of one server and the start of the next."""
    kernel = Kernel(root)
    if what == "close":
        put(kernel, "a")
    elif what == "rename":
        kernel.rename("a", "b")
    elif what == "unlink":
        kernel.unlink("a")


LEFT = {"nothing": {"a": b"the API's"}, "close": {"a": b"the mount's"}, "rename": {"b": b"before"}, "unlink": {}}


@pytest.mark.parametrize("what", LEFT)
@pytest.mark.parametrize("way", ["write", "upload"])
def test_what_a_mount_did_after_a_kill_is_not_undone_by_what_was_not_acknowledged(
    tmp_path: Path, what: str, way: str
) -> None:
    store = ObjectStore(tmp_path)
    store.create_bucket("data")
    on = Preconditions(generation_match=store.write("data", "a", b"before").generation)
    upload = store.uploads.start("data", "a", preconditions=on).id
    store.uploads.append(upload, 0, b"the API's")
    writes = {
        "write": lambda: store.write("data", "a", b"the API's", preconditions=on),
        "upload": lambda: store.uploads.finish(upload),
    }
    with killed(store._core.bodies, "_move"):
        writes[way]()
    store.close()
    at_mount(tmp_path, what)
    for _ in range(2):
        with ObjectStore(tmp_path) as store:
            found = {it.name: store.open_read("data", it.name) for it in store.list("data").objects}
            with contextlib.ExitStack() as stack:
                assert {name: stack.enter_context(reader).read() for name, reader in found.items()} == LEFT[what]
            if way == "upload":
                state = store.uploads.get(upload)
                assert (state.finished is not None, state.received) == (what == "nothing", len(b"the API's"))
    if way == "upload" and what != "nothing":  # its client continues, and gets the error
        with ObjectStore(tmp_path) as store, pytest.raises(PreconditionFailed):
            store.uploads.finish(upload)


DEEDS: dict[str, Callable[[Kernel], None]] = {
    "nothing": lambda kernel: None,
    "write the old name": lambda kernel: put(kernel, "a"),
    "write the new name": lambda kernel: put(kernel, "b"),
    "rename the old name": lambda kernel: kernel.rename("a", "c"),
    "rename the new name": lambda kernel: kernel.rename("b", "c"),
    "rename it back": lambda kernel: kernel.rename("b", "a"),
    "remove the old name": lambda kernel: kernel.unlink("a"),
    "remove the new name": lambda kernel: kernel.unlink("b"),
}


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("replaces", [True, False])
@pytest.mark.parametrize("before", ["_move", "_give_room"])
def test_a_killed_move_leaves_what_a_mount_sees_and_does_after_it(
    tmp_path: Path, before: str, replaces: bool, deed: str
) -> None:
    before_it = {"a": b"A", "b": b"B"} if replaces else {"a": b"A"}
    store = ObjectStore(tmp_path)
    store.create_bucket("data")
    for name, body in before_it.items():
        store.write("data", name, body, ObjectFields(content_type=f"text/{body.decode()}"))
    with killed(store._core.bodies, before) as patched:
        patched.setattr(store._core.database, "end_move", lambda: None)
        store.move(SourceObject("data", "a"), "b")
    store.close()
    tree = tmp_path / "buckets" / "data"

    def seen() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in tree.iterdir()}

    assert seen() == (before_it if before == "_move" else {"b": b"A"})
    with contextlib.suppress(FileNotFoundError):
        DEEDS[deed](Kernel(tmp_path))
    left = seen()
    for _ in range(2):
        with ObjectStore(tmp_path) as store:
            listed = {it.name: it for it in store.list("data").objects}
            assert seen() == left
            assert listed.keys() == left.keys()
            if deed == "nothing":
                assert {it.fields.content_type for it in listed.values()} == {
                    f"text/{b.decode()}" for b in left.values()
                }
    assert list((tmp_path / ".t5x-harness" / "incoming").iterdir()) == []


def test_a_move_that_is_refused_as_its_file_is_renamed_has_moved_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with ObjectStore(tmp_path) as store:
        store.create_bucket("data")
        before = [store.write("data", "a", b"A"), store.write("data", "b", b"B")]
        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", full)
            with pytest.raises(OSError, match="No space left"):
                store.move(SourceObject("data", "a"), "b")
        assert [*store.list("data").objects] == before
        store.move(SourceObject("data", "a"), "b")


def test_a_body_that_moves_into_the_tree_leaves_a_mounts_file_alone(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    store.create_bucket("data")
    store.write("data", "a/below", b"x")
    store.write("data", "a", b"aside")
    with killed(store._core.bodies, "_move"):
        store.delete("data", "a/below")
    store.close()
    at_mount(tmp_path, "close")
    with ObjectStore(tmp_path) as store, store.open_read("data", "a") as reader:
        assert reader.read() == b"the mount's"
    assert list((tmp_path / ".t5x-harness" / "aside").iterdir()) == []


def test_what_a_killed_mount_leaves_is_removed(tmp_path: Path) -> None:
    with ObjectStore(tmp_path) as store:
        store.create_bucket("data")
        store.write("data", "a", b"before")
        kernel = Kernel(tmp_path)
        handle = kernel.open("a", os.O_WRONLY | os.O_TRUNC)
        with killed(os, "replace"):
            kernel.flush(handle)
    with ObjectStore(tmp_path) as store, store.open_read("data", "a") as reader:
        assert reader.read() == b"before"
    assert list((tmp_path / ".t5x-harness" / "incoming").iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"buckets", ".t5x-harness"}
