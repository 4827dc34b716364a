"""Changes that others make in the folder are detected correctly, and none of their files is lost."""

import os
import threading
from pathlib import Path

import pytest
from storing import content, md5_of

from t5x_harness.google.storage import core
from t5x_harness.google.storage.errors import Forbidden, NoSuchResource, PreconditionFailed
from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import ObjectFields, Preconditions, SourceObject


@pytest.mark.parametrize("look", ["stat", "list", "read", "write"])
def test_a_changed_file_is_a_new_generation(store: ObjectStore, tree: Path, look: str) -> None:
    before = store.write("data", "a", b"before", ObjectFields(content_type="x/y"))
    (tree / "a").write_bytes(b"behind")  # the same length
    if look == "write":
        with pytest.raises(PreconditionFailed):
            store.write("data", "a", b"x", preconditions=Preconditions(generation_match=before.generation))
    elif look == "read":
        with store.open_read("data", "a") as reader:
            assert reader.read() == b"behind"
            assert reader.object.generation > before.generation
    elif look == "list":
        assert store.list("data").objects[0].generation > before.generation
    after = store.stat("data", "a")
    assert after.generation > before.generation
    assert after.md5 == md5_of(b"behind")
    assert after.fields == ObjectFields()
    assert content(store, "a") == b"behind"


def test_a_file_that_is_replaced_before_it_is_opened_is_read_as_its_own_generation(
    store: ObjectStore, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = store.write("data", "a", b"before")
    really_open = os.open

    def replace_first(path: str, *arguments: int) -> int:
        if path.endswith("/data/a"):
            monkeypatch.undo()
            (tree / "b").write_bytes(b"behind")
            os.replace(tree / "b", tree / "a")
        return really_open(path, *arguments)

    monkeypatch.setattr(os, "open", replace_first)
    with store.open_read("data", "a") as reader:
        assert reader.object.generation > before.generation
        assert (reader.object.md5, reader.read()) == (md5_of(b"behind"), b"behind")


def test_changes_in_quick_succession_are_all_seen(store: ObjectStore, tree: Path) -> None:
    generations = []
    for index in range(20):
        (tree / "a").write_bytes(f"{index:04}".encode())
        assert content(store, "a") == f"{index:04}".encode()
        generations.append(store.stat("data", "a").generation)
    assert generations == sorted(set(generations))


def test_a_file_put_in_anothers_place_is_a_new_generation(store: ObjectStore, tree: Path) -> None:
    before = store.write("data", "a", b"before")
    (tree / "b").write_bytes(b"behind")
    os.utime(tree / "b", ns=(before.generation * 1000, before.generation * 1000))
    os.replace(tree / "b", tree / "a")
    assert store.stat("data", "a").generation > before.generation


def test_a_file_in_the_way_of_an_object_aside(store: ObjectStore, tree: Path, names) -> None:
    """``a/b`` waits aside because of ``a``; then someone removes the file ``a`` and creates another file ``a/b``."""
    store.write("data", "a", b"1")
    store.write("data", "a/b", b"aside")
    store.write("data", "a/c", b"aside too")
    (tree / "a").unlink()
    (tree / "a").mkdir()
    (tree / "a" / "b").write_bytes(b"theirs")
    assert names() == ["a/b", "a/c"]
    assert (content(store, "a/b"), content(store, "a/c")) == (b"theirs", b"aside too")
    assert (tree / "a" / "c").read_bytes() == b"aside too"


def test_files_whose_names_are_no_objects_are_left_alone(store: ObjectStore, tree: Path, names) -> None:
    for name in (b"not-utf8-\xff", b"line\nfeed", b"fine"):
        Path(os.fsdecode(os.path.join(os.fsencode(tree), name))).write_bytes(b"x")
    os.mkfifo(tree / "pipe")
    (tree / "dangling").symlink_to("nowhere")
    assert names() == ["fine"]
    store.write("data", "pipe", b"aside")
    assert content(store, "pipe") == b"aside"
    assert (tree / "pipe").is_fifo()


def test_links_are_followed_but_not_in_circles(store: ObjectStore, tree: Path, tmp_path: Path, names) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "c4").write_bytes(b"x")
    (tree / "linked").symlink_to(tmp_path / "elsewhere")
    (tree / "folder").mkdir()
    (tree / "folder" / "self").symlink_to(tree / "folder")
    (tree / "folder" / "up").symlink_to(tree)
    (tree / "folder" / "a").write_bytes(b"x")
    assert names() == ["folder/a", "linked/c4"]
    store.write("data", "folder/self/a", b"y")  # the same file under another name
    assert content(store, "folder/a") == b"y"
    (tmp_path / "elsewhere" / "c4").unlink()
    assert "linked/c4" not in names()


def test_copies_and_compositions_see_changes(store: ObjectStore, tree: Path) -> None:
    store.write("data", "a", b"before")
    (tree / "a").write_bytes(b"after")
    store.copy(SourceObject("data", "a"), "data", "b")
    store.compose("data", "c", [SourceObject("data", "a"), SourceObject("data", "b")])
    assert (content(store, "b"), content(store, "c")) == (b"after", b"afterafter")


def test_a_file_that_is_being_written_does_not_stop_a_listing(store: ObjectStore, tree: Path, names) -> None:
    stop = threading.Event()
    (tree / "log").touch()

    def write() -> None:
        with open(tree / "log", "ab", buffering=0) as file:
            while not stop.is_set():
                file.write(b"line\n")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        generations = []
        for _ in range(3):
            assert names() == ["log"]
            with store.open_read("data", "log") as reader:
                data = reader.read()
            assert len(data) == reader.object.size
            assert data.replace(b"line\n", b"") == b""
            generations.append(reader.object.generation)
    finally:
        stop.set()
        thread.join()
    assert generations == sorted(generations)
    assert content(store, "log") == (tree / "log").read_bytes()


def test_changes_while_the_store_was_closed_are_seen(root: Path) -> None:
    with ObjectStore(root) as store:
        store.create_bucket("data")
        old = {name: store.write("data", name, b"1") for name in ("a", "b", "c", "d//")}
    (root / "buckets" / "data" / "a").write_bytes(b"2")
    (root / "buckets" / "data" / "b").unlink()
    with ObjectStore(root) as store:
        new = {found.name: found for found in store.list("data").objects}
        assert set(new) == {"a", "c", "d//"}
        assert new["a"].generation > old["d//"].generation
        assert (new["c"], new["d//"]) == (old["c"], old["d//"])


def test_a_write_while_the_file_before_it_is_read_keeps_its_fields(
    store: ObjectStore, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file from outside is read without the lock; an object that a client writes meanwhile is newer, and stays."""
    (tree / "a").write_bytes(b"from outside")
    read, written = core._read_steadily, []

    def read_while_somebody_writes(path: str) -> object:
        found = read(path)
        if not written:
            written.append(store.write("data", "a", b"theirs", ObjectFields(metadata={"k": "v"})))
        return found

    monkeypatch.setattr(core, "_read_steadily", read_while_somebody_writes)
    assert [store.stat("data", "a")] == written == [store.stat("data", "a")]
    assert content(store, "a") == b"theirs"


def test_links_in_circles_and_files_that_may_not_be_read_are_no_objects(
    store: ObjectStore, tree: Path, names, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "loop").symlink_to("loop")
    (tree / "secret").write_bytes(b"x")
    known = store.write("data", "known", b"x", ObjectFields(content_type="x/y"))
    store.write("data", "below/loop", b"x")
    (tree / "below" / "loop").unlink()
    (tree / "below" / "loop").symlink_to("loop")
    opened = os.open

    def open_as_somebody_else(path, *arguments, **named):
        if str(path).endswith(("secret", "known")):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **named)

    monkeypatch.setattr(os, "open", open_as_somebody_else)
    assert names() == ["known"]
    for name in ("loop", "secret", "below/loop"):
        with pytest.raises(NoSuchResource):
            store.stat("data", name)
    assert store.stat("data", "known") == known
    with pytest.raises(Forbidden, match=f"{tree}/known cannot be read: Permission denied"):
        store.open_read("data", "known")
    os.utime(tree / "known")  # its current content cannot be read
    assert store.list("data").objects == (known,)
    monkeypatch.undo()
    assert names() == ["known", "secret"]
    store.write("data", "loop", b"in the link's place")
    store.write("data", "loop/below", b"aside")
    assert content(store, "loop") == b"in the link's place"


def test_a_folder_that_may_not_be_entered_forgets_nothing(
    store: ObjectStore, names, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = store.write("data", "folder/a", b"x", ObjectFields(content_type="x/y"))
    looked, listed = os.stat, os.scandir

    def refuse(function):
        def call(path, *arguments, **named):
            if os.fsdecode(path).rstrip("/").endswith(("folder", "folder/a")):
                raise PermissionError(13, "Permission denied", path)
            return function(path, *arguments, **named)

        return call

    monkeypatch.setattr(os, "stat", refuse(looked))
    monkeypatch.setattr(os, "scandir", refuse(listed))
    assert names() == ["folder/a"]
    monkeypatch.undo()
    assert store.stat("data", "folder/a") == known
