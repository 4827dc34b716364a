"""All legal names work; one that a folder can hold becomes a file, and of two conflicting names, the first one wins."""

from pathlib import Path

from storing import content

from t5x_harness.google.storage.store import ObjectStore

UNFIT = [
    *("//", "/a", "a//b", "a/b//", "./a", "a/./b", "../a", "a/..", "../../../../etc/passwd", "a\0b"),
    *("x" * 256, "é" * 128, f"a/{'y' * 300}/b", "z" * 1024, "/" * 1024, "full/"),
]
FIT = [
    *("a", "b/c/d", ".hidden", "...", "..a/b", " ", "~", "*", "a\tb", "é" * 127, "x" * 255, "😀/✓"),
    *(".t5x-harness/lock", "/".join(["d"] * 512)),
]


def files(tree: Path) -> dict[str, bytes]:
    return {str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


def test_fit_names_are_files_and_others_are_kept_aside(root: Path, store: ObjectStore, tree: Path) -> None:
    for name in FIT + UNFIT:
        store.write("data", name, name.encode())
    assert files(tree) == {name: name.encode() for name in FIT}
    assert {name: content(store, name) for name in FIT + UNFIT} == {name: name.encode() for name in FIT + UNFIT}
    assert [found.name for found in store.list("data").objects] == sorted(FIT + UNFIT, key=str.encode)
    assert {path.name for path in root.iterdir()} == {"buckets", ".t5x-harness"}
    for name in FIT + UNFIT:
        store.delete("data", name)
    assert list(tree.iterdir()) == []
    assert list((root / ".t5x-harness" / "aside").iterdir()) == []


def test_below_a_file_objects_wait_aside_until_it_is_deleted(store: ObjectStore, tree: Path) -> None:
    store.write("data", "a", b"file")
    for name in ("a/", "a/b", "a/b/c", "a/d"):
        store.write("data", name, b"" if name == "a/" else name.encode())
    assert files(tree) == {"a": b"file"}
    before = {found.name: found for found in store.list("data").objects}
    store.delete("data", "a")
    assert files(tree) == {"a/b": b"a/b", "a/d": b"a/d"}
    after = {found.name: found for found in store.list("data").objects}
    assert after == {name: found for name, found in before.items() if name != "a"}  # generations too
    store.delete("data", "a/b")
    assert files(tree) == {"a/b/c": b"a/b/c", "a/d": b"a/d"}
    assert content(store, "a/b/c") == b"a/b/c"


def test_an_object_waits_aside_until_the_folder_of_its_name_is_empty(store: ObjectStore, tree: Path) -> None:
    store.write("data", "a/b/c", b"below")
    store.write("data", "a", b"upper")
    store.write("data", "a/b", b"middle")
    assert files(tree) == {"a/b/c": b"below"}
    store.delete("data", "a/b/c")
    assert files(tree) == {"a/b": b"middle"}
    store.delete("data", "a/b")
    assert files(tree) == {"a": b"upper"}


def test_an_overwritten_object_stays_where_it_is(store: ObjectStore, tree: Path) -> None:
    store.write("data", "a", b"1")
    store.write("data", "a/b", b"2")
    store.write("data", "a/b", b"22")
    store.write("data", "a", b"11")
    assert files(tree) == {"a": b"11"}
    assert (content(store, "a"), content(store, "a/b")) == (b"11", b"22")


def test_a_folder_object_that_gets_content_goes_aside(store: ObjectStore, tree: Path) -> None:
    store.write("data", "a/", b"")
    store.write("data", "a/", b"content")
    assert list(tree.iterdir()) == []
    assert content(store, "a/") == b"content"
    store.write("data", "a/", b"")
    assert (tree / "a").is_dir()
    assert content(store, "a/") == b""
