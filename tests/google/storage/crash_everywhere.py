"""A script that kills a forked store before each of its disk operations, and checks what the next store finds.

Its argument is a folder to work in. It prints the number of crashes that were survived, or fails at the first one
that was not.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from t5x_harness.google.storage.store import ObjectStore
from t5x_harness.google.storage.values import ListingQuery, ObjectFields, SourceObject

DISK_EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.utime"}
State = dict[str, tuple[bytes, str | None]]


def fields(mark: str) -> ObjectFields:
    return ObjectFields(metadata={"mark": mark})


def upload(store: ObjectStore) -> None:
    begun = store.uploads.start("data", "x/y/z", fields("6"))
    store.uploads.append(begun.id, 0, b"up")
    store.uploads.append(begun.id, 2, b"load")
    store.uploads.finish(begun.id)


def send_in_parts(store: ObjectStore) -> None:
    begun = store.multiparts.start("data", "p", fields("11"))
    with store.multiparts.open_part(begun.id, 1) as part:
        part.write(b"part")
        etag = part.commit().etag
    store.multiparts.complete(begun.id, [(1, etag)])


def delete_a_bucket(store: ObjectStore) -> None:
    store.create_bucket("other")
    store.uploads.start("other", "x")
    begun = store.multiparts.start("other", "y")
    with store.multiparts.open_part(begun.id, 1) as part:
        part.write(b"part")
        part.commit()
    store.delete_bucket("other")


def move(name: str, to: str) -> Callable[[ObjectStore], object]:
    return lambda store: store.move(SourceObject("data", name), to)


STEPS: list[tuple[Callable[[ObjectStore], object], State]] = [
    (lambda store: store.write("data", "a", b"1", fields("1")), {"a": (b"1", "1")}),
    (lambda store: store.write("data", "a", b"22", fields("2")), {"a": (b"22", "2")}),
    (lambda store: store.write("data", "a/b", b"333", fields("3")), {"a/b": (b"333", "3")}),
    (lambda store: store.write("data", "a/b", b"4444", fields("4")), {"a/b": (b"4444", "4")}),
    (lambda store: store.write("data", "m/n/", b"", fields("5")), {"m/n/": (b"", "5")}),
    (upload, {"x/y/z": (b"upload", "6")}),
    (lambda store: store.write("data", "x", b"7", fields("7")), {"x": (b"7", "7")}),
    (lambda store: store.patch("data", "x", fields("8")), {"x": (b"7", "8")}),
    (lambda store: store.delete("data", "a"), {"a": (b"", None)}),  # a/b moves into the tree
    (lambda store: store.delete("data", "x/y/z"), {"x/y/z": (b"", None)}),  # and so does x
    (lambda store: store.write("data", "m/n/", b"9", fields("9")), {"m/n/": (b"9", "9")}),
    (lambda store: store.write("data", "m/n/", b"", fields("10")), {"m/n/": (b"", "10")}),
    (lambda store: store.copy(SourceObject("data", "a/b"), "data", "c//"), {"c//": (b"4444", "4")}),
    (lambda store: store.delete("data", "c//"), {"c//": (b"", None)}),
    (lambda store: store.delete("data", "m/n/"), {"m/n/": (b"", None)}),
    (send_in_parts, {"p": (b"part", "11")}),
    (move("p", "q/r"), {"p": (b"", None), "q/r": (b"part", "11")}),
    (move("q/r", "q"), {"q/r": (b"", None), "q": (b"part", "11")}),  # takes the place of its folder
    (lambda store: store.write("data", "q/s", b"12", fields("12")), {"q/s": (b"12", "12")}),  # aside
    (move("q", "q/t"), {"q": (b"", None), "q/t": (b"part", "11")}),  # below itself; q/s moves into the tree
    (move("q/s", "q//"), {"q/s": (b"", None), "q//": (b"12", "12")}),  # out of the tree
    (move("q//", "q/t"), {"q//": (b"", None), "q/t": (b"12", "12")}),  # back, replacing another object
    (lambda store: store.write("data", "m/", b"", fields("13")), {"m/": (b"", "13")}),
    (move("m/", "n/"), {"m/": (b"", None), "n/": (b"", "13")}),
    (move("n/", "n"), {"n/": (b"", None), "n": (b"", "13")}),  # a folder becomes a file
    (move("n", "q/o/"), {"n": (b"", None), "q/o/": (b"", "13")}),  # and a file becomes a folder
    (delete_a_bucket, {}),
]


def states() -> list[State]:
    """Returns the expected objects after each number of steps."""
    found: list[State] = [{}]
    for _, change in STEPS:
        merged = found[-1] | change
        found.append({name: value for name, value in merged.items() if value[1] is not None})
    return found


class Killer:
    """Ends the process, as SIGKILL does, before the operation on the disk that has a given number."""

    def __init__(self, at: int) -> None:
        self._left = at
        self._armed = False

    def watch(self, store: ObjectStore) -> None:
        execute = store._core.database._execute

        def watched(*arguments: object) -> object:
            self.tick()
            return execute(*arguments)

        store._core.database._execute = watched
        sys.addaudithook(lambda event, _: self.tick() if event in DISK_EVENTS else None)
        self._armed = True

    def tick(self) -> None:
        if self._armed:
            self._left -= 1
            if self._left < 0:
                os._exit(9)


def open_without_waiting(root: Path) -> ObjectStore:
    """Opens a store that does not wait for the disk, which matters only for power cuts, not for kills."""
    store = ObjectStore(root)
    store._core.database._execute("PRAGMA synchronous = OFF")
    return store


def crash(root: Path, at: int) -> tuple[int, bool]:
    """Takes the steps in a process that is killed; returns how many were acknowledged, and whether it took them all."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        store = open_without_waiting(root)
        Killer(at).watch(store)
        for step, _ in STEPS:
            step(store)
            os.write(writer, b".")
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as acknowledged:
        count = len(acknowledged.read())
    _, status = os.waitpid(child, 0)
    return count, os.waitstatus_to_exitcode(status) == 0


def found_in(root: Path) -> State:
    with open_without_waiting(root) as store:
        found: State = {}
        for listed in store.list("data", ListingQuery()).objects:
            with store.open_read("data", listed.name) as reader:
                found[listed.name] = reader.read(), (listed.fields.metadata or {}).get("mark", "nothing said")
        private = root / ".t5x-harness"
        unfinished = {upload.id for _, upload in store._core.database.uploads() if upload.finished is None}
        parts = store._core.database.part_bodies()
        assert {path.name for path in (private / "incoming").iterdir()} == unfinished | parts
        aside = {record.body for record in store._core.database.records_from("data", b"") if record.place == "aside"}
        assert {path.name for path in (private / "aside").iterdir()} == aside
    return found


def main(folder: Path) -> None:
    expected = states()
    empty = folder / "empty"
    with open_without_waiting(empty) as store:
        store.create_bucket("data")
    at = 0
    while True:
        root = folder / str(at)
        shutil.copytree(empty, root)
        acknowledged, through = crash(root, at)
        found = found_in(root)
        allowed = expected[acknowledged : acknowledged + 2]
        assert found in allowed, f"killed before disk event {at}, after {acknowledged} steps: {found} not in {allowed}"
        if through:
            print(at)
            return
        at += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
